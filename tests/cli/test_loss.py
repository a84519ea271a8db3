"""The lock is lost: the child is ended, and the exit code says so."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import PAWLOCK, Pawlock, environment, eventually, lives
from tests.support.pace import pace


def test_somebody_deletes_the_key(pawlock: Pawlock) -> None:
    command = pawlock.start(
        "run",
        "--ttl",
        "1",
        "job",
        "--",
        "sh",
        "-c",
        "trap 'echo told; exit 3' TERM; echo $$; sleep 60 & wait",
    )
    child = int(command.line())
    pawlock.server.command("DEL", "pawlock:job")
    began = time.monotonic()
    code, out, err = command.end()
    assert (code, out) == (76, "told\n")
    assert err.startswith("pawlock: the lease of 'job' was lost (")
    assert err.count("\n") == 1
    assert time.monotonic() - began < pace() * 5
    assert not lives(child)


def test_somebody_takes_the_key(pawlock: Pawlock) -> None:
    command = pawlock.hold("job", "--ttl", "1")
    pawlock.server.command("SET", "pawlock:job", "somebody-else", "PX", "60000")
    code, _, err = command.end()
    assert code == 76
    assert "(taken)" in err
    assert pawlock.server.command("GET", "pawlock:job") == b"somebody-else"


@pytest.mark.slow
def test_the_server_is_gone(pawlock_alone: Pawlock) -> None:
    command = pawlock_alone.hold("job", "--ttl", "1.5")
    pawlock_alone.server.kill()
    began = time.monotonic()
    code, _, err = command.end()
    assert code == 76
    assert err.count("\n") == 1
    assert "was not renewed in time (unreachable)" in err
    assert 0.5 < time.monotonic() - began < pace() * 8, "not at the end of `unavailable_after`"


def test_the_server_hangs(pawlock_alone: Pawlock) -> None:
    command = pawlock_alone.hold("job", "--ttl", "1.5")
    with pawlock_alone.server.paused():
        began = time.monotonic()
        code, _, err = command.end()
        assert code == 76
        assert err.count("\n") == 1
        assert 0.5 < time.monotonic() - began < pace() * 8


def test_a_short_outage_is_no_loss(pawlock_alone: Pawlock) -> None:
    command = pawlock_alone.start("run", "--ttl", "4", "job", "--", "sh", "-c", "echo in; sleep 3; exit 5")
    assert command.line() == "in"
    with pawlock_alone.server.paused():
        time.sleep(1.5)
    assert command.end() == (5, "", "")


def test_warn_lets_the_child_go_on(pawlock: Pawlock) -> None:
    command = pawlock.start(
        "run",
        "--ttl",
        "1",
        "--on-lost",
        "warn",
        "job",
        "--",
        "sh",
        "-c",
        "echo in; sleep 2; echo done; exit 3",
    )
    assert command.line() == "in"
    pawlock.server.command("DEL", "pawlock:job")
    code, out, err = command.end()
    assert (code, out) == (3, "done\n")
    assert "keeps running" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_kill_comes_after_term(pawlock: Pawlock) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('in', flush=True); time.sleep(60)"
    command = pawlock.start(
        "run", "--ttl", "3", "--kill-after", "1", "job", "--", sys.executable, "-c", script
    )
    assert command.line() == "in"
    pawlock.server.command("DEL", "pawlock:job")
    began = time.monotonic()
    assert command.end()[0] == 76
    assert 1 <= time.monotonic() - began < pace() * 8


def test_a_command_whose_lock_was_lost_before_it_began_is_not_started(
    pawlock: Pawlock, tmp_path: Path
) -> None:
    """It is kept from running, after its grant, by a standard error that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    mark = tmp_path / "mark"
    process = subprocess.Popen(
        [*PAWLOCK, "run", "--json", "--ttl", "1", "job", "--", "touch", str(mark)],
        env=environment(PAWLOCK_URL=pawlock.server.url),
        stderr=writer,
    )
    os.close(writer)
    try:
        eventually(lambda: pawlock.server.command("EXISTS", "pawlock:job"))
        pawlock.server.command("DEL", "pawlock:job")
        time.sleep(1.1)  # more than its ttl
        with os.fdopen(reader, encoding="utf-8") as err:
            said = err.read()
        assert process.wait(10) == 76
    finally:
        process.kill()
        process.wait()
    assert '"event": "lost"' in said
    assert "ending the command" not in said
    assert not mark.exists()


def test_all_of_the_group_is_ended(pawlock: Pawlock) -> None:
    script = "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); while :; do sleep 0.1; done) & wait"
    command = pawlock.start("run", "--ttl", "3", "--kill-after", "1", "job", "--", "sh", "-c", script)
    stubborn = int(command.line())
    pawlock.server.command("DEL", "pawlock:job")
    began = time.monotonic()
    assert command.end()[0] == 76
    assert 1 <= time.monotonic() - began < pace() * 8
    assert not lives(stubborn)


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_stopped_command_ends_the_child_first_thing_when_it_goes_on(
    pawlock: Pawlock, *, beside: bool
) -> None:
    """While it is stopped it can end nothing, and another gets the lock: the fence is for that (docs/concepts/limits.md)."""
    command = pawlock.start("run", "--ttl", "1", "job", "--", "sh", "-c", "echo $$; exec sleep 60")
    child = int(command.line())
    command.send(signal.SIGSTOP)
    if beside:  # a freezer stops both
        os.kill(child, signal.SIGSTOP)
    pawlock.client.lock("job").acquire(timeout=5).release()
    assert lives(child)
    command.send(signal.SIGCONT)
    eventually(lambda: not lives(child), 0.5)
    code, _, err = command.end(5)
    assert code == 76
    # The supervisor's clock says the one, and the client's the other: which is sooner, the scheduler decides.
    assert "was lost (expired)" in err or "was not renewed in time" in err


@pytest.mark.slow
def test_a_short_stop_is_no_loss(pawlock: Pawlock) -> None:
    command = pawlock.start("run", "--ttl", "3", "job", "--", "sh", "-c", "echo in; sleep 2; exit 6")
    assert command.line() == "in"
    command.send(signal.SIGSTOP)
    time.sleep(1)
    command.send(signal.SIGCONT)
    assert command.end() == (6, "", "")
    assert pawlock.left_over() == []


def test_a_long_job_keeps_its_lock(pawlock: Pawlock) -> None:
    script = "echo in; read x; exit 2"
    command = pawlock.start("run", "--ttl", "1", "job", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert command.line() == "in"
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert pawlock.client.lock("job").try_acquire() is None
        time.sleep(0.05)
    assert command.process.stdin is not None
    command.process.stdin.write("go\n")
    assert command.end() == (2, "", "")
