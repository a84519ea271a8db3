"""The verb `pawlock server`, as its users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from pawlock import embedded
from pawlock.embedded._watch import Connection

pytest.importorskip("click", reason="the command needs click")


def pawlock(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pawlock", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_start_status_stop(state: Path) -> None:
    before = pawlock("server", "status", "--state-dir", state)
    assert (before.returncode, before.stdout) == (3, f"not running; data in {state}\n")
    assert not state.exists()

    first = pawlock("server", "start", "--state-dir", state)
    assert first.returncode == 0
    assert "pawlock: started: process" in first.stderr
    url = urlsplit(first.stdout.strip())
    assert url.scheme == "unix"
    with Connection(unquote(url.path), 5.0) as connection:
        assert connection.ask("PING") == "PONG"
        second = pawlock("server", "start", "--quiet", "--state-dir", state)
        assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")

        told = pawlock("server", "status", "--state-dir", state)
        assert told.returncode == 0
        assert told.stdout.startswith("running\n")
        for word in ("process", str(state), "clients  1", "exits when idle"):
            assert word in told.stdout

        refused = pawlock("server", "stop", "--state-dir", state)
        assert refused.returncode == 75
        assert refused.stderr.startswith("pawlock: ")
        assert "connected clients: 1" in refused.stderr
        assert "--force" in refused.stderr
        assert connection.ask("PING") == "PONG"

    ended = pawlock("server", "stop", "--state-dir", state)
    assert (ended.returncode, ended.stdout) == (0, "stopped\n")
    again = pawlock("server", "stop", "--state-dir", state)
    assert (again.returncode, again.stdout) == (0, "was not running\n")


def test_stop_by_force(state: Path) -> None:
    with Connection(embedded.ensure(state).socket, 5.0):
        assert pawlock("server", "stop", "--force", "--state-dir", state).returncode == 0
    assert not embedded.status(state).running


def test_status_for_programs(state: Path) -> None:
    nothing = pawlock("server", "status", "--json", "--state-dir", state)
    assert (nothing.returncode, json.loads(nothing.stdout)["running"]) == (3, False)
    server = embedded.ensure(state)
    found = pawlock("server", "status", "--json", "--state-dir", state)
    told = json.loads(found.stdout)
    assert found.returncode == 0
    assert (told["running"], told["pid"], told["socket"]) == (True, server.pid, server.socket)
    assert (told["clients"], told["watched"]) == (0, True)


def test_the_folder_comes_from_the_environment(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_STATE_DIR", str(state))
    assert pawlock("server", "start").returncode == 0
    assert embedded.status(state).running


def test_errors_are_one_line(state: Path) -> None:
    state.mkdir()
    state.chmod(0o777)
    refused = pawlock("server", "start", "--state-dir", state)
    assert refused.returncode == 64
    assert refused.stderr.startswith("pawlock: others may write to")
    assert refused.stderr.count("\n") == 1


def test_a_missing_program_is_told(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", os.devnull)
    refused = pawlock("server", "start", "--state-dir", state)
    assert refused.returncode == 64
    assert "PAWLOCK_SERVER_BIN=/dev/null" in refused.stderr


@pytest.mark.parametrize("verb", ["start", "status", "stop"])
def test_help_teaches(verb: str) -> None:
    shown = pawlock("server", verb, "--help")
    assert shown.returncode == 0
    for word in ("Examples:", f"pawlock server {verb}", "Exit codes:", "--state-dir"):
        assert word in shown.stdout


def test_the_folder_of_an_embedded_url(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that `connect()` takes is the one that is looked at, not that of the default folder."""
    monkeypatch.setenv("PAWLOCK_URL", f"embedded://{state}")
    assert pawlock("server", "start").returncode == 0
    told = json.loads(pawlock("server", "status", "--json").stdout)
    assert (told["running"], told["state_dir"]) == (True, str(state))
    monkeypatch.setenv("PAWLOCK_URL", "redis://elsewhere")
    told = json.loads(pawlock("--url", f"embedded://{state}", "server", "status", "--json").stdout)
    assert told["state_dir"] == str(state)
    refused = pawlock("--url", "redis://elsewhere", "server", "status")
    assert (refused.returncode, refused.stderr.count("\n")) == (64, 1)
    monkeypatch.setenv("PAWLOCK_URL", f"embedded://{state}")
    assert pawlock("server", "stop").returncode == 0
    assert not embedded.status(state).running
