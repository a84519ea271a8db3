"""The verb `pawlock server`, as its users run it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from pawlock import embedded
from tests.support.command import call
from tests.support.embedded import eventually, looked_after
from tests.support.resp import Wire


def pawlock(*args: object, **variables: str) -> tuple[int, str, str]:
    """Exit code, output and errors; the command has the settings of this process."""
    return call(*map(str, args), env={**os.environ, **variables})


def test_start_status_stop(state: Path) -> None:
    folder = ("--state-dir", state)
    assert pawlock("server", "status", *folder) == (3, f"not running; {state}\n", "")
    assert not state.exists()

    code, out, err = pawlock("server", "start", *folder)
    assert code == 0
    assert "pawlock: started: process" in err
    url = urlsplit(out.strip())
    assert url.scheme == "unix"
    with Wire(unquote(url.path)) as connection:
        assert connection.command("PING") == "PONG"
        looked_after(connection)
        assert pawlock("server", "start", "--quiet", *folder) == (0, out, "")

        code, told, err = pawlock("server", "status", *folder)
        assert (code, err) == (0, "")
        assert told.startswith("running\n")
        for word in ("process", str(state), "clients  1"):
            assert word in told

        code, out, err = pawlock("server", "stop", *folder)
        assert (code, out) == (75, "")
        assert err.startswith("pawlock: ")
        assert "connected clients: 1" in err
        assert "--force" in err
        assert connection.command("PING") == "PONG"

    assert eventually(lambda: embedded.status(state).clients == 0)
    assert pawlock("server", "stop", *folder) == (0, "stopped\n", "")
    assert pawlock("server", "stop", *folder) == (0, "was not running\n", "")


def test_a_doctor_has_nothing_to_mend(state: Path) -> None:
    code, out, err = pawlock("--url", f"embedded://{state}", "doctor")
    assert (code, err) == (0, ""), out
    assert "the embedded server keeps nothing on disk" in out


def test_stop_by_force(state: Path) -> None:
    with Wire(embedded.ensure(state).socket):
        assert pawlock("server", "stop", "--force", "--state-dir", state)[0] == 0
    assert not embedded.status(state).running


def test_status_for_programs(state: Path) -> None:
    words = ("server", "status", "--json", "--state-dir", state)
    code, out, _ = pawlock(*words)
    assert (code, json.loads(out)["running"]) == (3, False)
    server = embedded.ensure(state)
    with Wire(server.socket) as connection:
        looked_after(connection)
    assert eventually(lambda: embedded.status(state).clients == 0)
    code, out, _ = pawlock(*words)
    told = json.loads(out)
    assert code == 0
    assert (told["running"], told["pid"], told["socket"]) == (True, server.pid, server.socket)
    assert told["clients"] == 0


def test_the_folder_comes_from_the_environment(state: Path) -> None:
    assert pawlock("server", "start", PAWLOCK_STATE_DIR=str(state))[0] == 0
    assert embedded.status(state).running


def test_errors_are_one_line(state: Path) -> None:
    state.mkdir()
    state.chmod(0o777)
    code, _, err = pawlock("server", "start", "--state-dir", state)
    assert (code, err.count("\n")) == (64, 1)
    assert err.startswith(f"pawlock: {state} must be a folder of yours that others may not write to")


def test_a_missing_program_is_told(state: Path) -> None:
    code, _, err = pawlock("server", "start", "--state-dir", state, PAWLOCK_SERVER_BIN=os.devnull)
    assert code == 64
    assert "PAWLOCK_SERVER_BIN=/dev/null" in err


def test_help_teaches() -> None:
    for verb in ("start", "status", "stop"):
        code, out, _ = pawlock("server", verb, "--help")
        assert code == 0
        for word in ("Examples:", f"pawlock server {verb}", "Exit codes:", "--state-dir"):
            assert word in out, verb


def test_the_folder_of_an_embedded_url(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that `connect()` takes is the one that is looked at, not that of the default folder."""
    monkeypatch.setenv("PAWLOCK_URL", f"embedded://{state}")
    assert pawlock("server", "start")[0] == 0
    told = json.loads(pawlock("server", "status", "--json")[1])
    assert (told["running"], told["state_dir"]) == (True, str(state))
    monkeypatch.setenv("PAWLOCK_URL", "redis://elsewhere")
    told = json.loads(pawlock("--url", f"embedded://{state}", "server", "status", "--json")[1])
    assert told["state_dir"] == str(state)
    code, _, err = pawlock("--url", "redis://elsewhere", "server", "status")
    assert (code, err.count("\n")) == (64, 1)
    monkeypatch.setenv("PAWLOCK_URL", f"embedded://{state}")
    assert pawlock("server", "stop", "--force")[0] == 0
    assert not embedded.status(state).running
