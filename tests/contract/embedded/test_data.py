"""What a server's data survive, and what is said when they cannot be read."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from pawlock import embedded
from pawlock.errors import BackendUnavailable
from tests.support.embedded import ask, eventually, watcher_of
from tests.support.resp import Reply, Wire

pytestmark = pytest.mark.slow


def number(reply: Reply) -> int:
    assert isinstance(reply, bytes | int)
    return int(reply)


def test_a_crash_keeps_the_data(state: Path) -> None:
    server = embedded.ensure(state)
    ask(server, "SET", "pawlock:job", "token@host", "PX", "60000")
    for fence in range(1, 51):
        assert ask(server, "HINCRBY", "{pawlock:job}:fence", "last", "1") == fence
    os.kill(server.pid, signal.SIGKILL)
    again = embedded.ensure(state)
    assert (again.started, again.pid != server.pid) == (True, True)
    assert ask(again, "HINCRBY", "{pawlock:job}:fence", "last", "1") == 51
    assert 0 < number(ask(again, "PTTL", "pawlock:job")) <= 60000
    watcher_of(state)


def test_a_killed_server_forgets_nothing_that_it_answered(state: Path) -> None:
    """Killed in the middle of writes of four threads: no reply waits for the disk, and none is forgotten."""
    server = embedded.ensure(state)
    answered = [0] * 4

    def write(at: int) -> None:
        try:
            with Wire(server.socket) as connection:
                while True:
                    answered[at] = number(
                        connection.command("HINCRBY", f"{{pawlock:{at}}}:fence", "last", "1")
                    )
        except OSError:
            return

    threads = [threading.Thread(target=write, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: min(answered) > 100)
    os.kill(server.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    again = embedded.ensure(state)
    kept = [number(ask(again, "HGET", f"{{pawlock:{at}}}:fence", "last")) for at in range(4)]
    assert all(now - was in (0, 1) for now, was in zip(kept, answered, strict=True)), (kept, answered)


def damage(state: Path) -> None:
    """What a machine that goes down leaves of a file that was not written to the disk: zeros."""
    for file in (state / "appendonlydir").glob("*.aof"):
        size = file.stat().st_size
        with file.open("r+b") as data:
            data.seek(size // 2)
            data.write(b"\0" * 200)


def filled(state: Path) -> None:
    server = embedded.ensure(state)
    for number in range(100):
        ask(server, "SET", f"k{number}", "v" * 50)
    embedded.stop(state, force=True)
    damage(state)


@pytest.mark.skipif(
    not Path("/proc/sys/kernel/random/boot_id").exists(), reason="this system does not name its boots"
)
def test_data_that_a_crash_of_the_machine_damaged_are_set_aside(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(state)
    told = json.loads((state / "written-by").read_text())
    (state / "written-by").write_text(json.dumps({**told, "boot": "another"}))
    with caplog.at_level(logging.WARNING, "pawlock.embedded"):
        server = embedded.ensure(state)
    assert ask(server, "DBSIZE") == 0
    assert "damaged in a crash of the machine" in caplog.text
    assert [entry for entry in state.iterdir() if ".damaged-" in entry.name]


def test_data_that_somebody_else_damaged_are_left_alone(state: Path) -> None:
    filled(state)
    with pytest.raises(BackendUnavailable, match="did not start") as raised:
        embedded.ensure(state)
    text = str(raised.value)
    assert "\n" not in text
    assert len(text) < 1000
    assert str(state / "server.log") in text
    assert not [entry for entry in state.iterdir() if ".damaged-" in entry.name]
    shutil.rmtree(state / "appendonlydir")
