"""The lock is lost: the child is ended, and the exit code says so."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Pawlock, eventually, lives
from tests.support.pace import pace


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


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
    assert err.startswith("pawlock: the lock 'job' was lost (")
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
    assert 1 <= time.monotonic() - began < pace() * 3


def test_all_of_the_group_is_ended(pawlock: Pawlock) -> None:
    script = "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); while :; do sleep 0.1; done) & wait"
    command = pawlock.start("run", "--ttl", "3", "--kill-after", "1", "job", "--", "sh", "-c", script)
    stubborn = int(command.line())
    pawlock.server.command("DEL", "pawlock:job")
    began = time.monotonic()
    assert command.end()[0] == 76
    assert 1 <= time.monotonic() - began < pace() * 3
    assert not lives(stubborn)


def test_a_stopped_command_ends_the_child_at_the_end_of_the_lease(pawlock: Pawlock) -> None:
    """Although `pawlock run` itself does not run: another waits for exactly this moment."""
    command = pawlock.start("run", "--ttl", "1", "job", "--", "sh", "-c", "echo $$; exec sleep 60")
    child = int(command.line())
    command.send(signal.SIGSTOP)
    began = time.monotonic()
    eventually(lambda: not lives(child), 3)
    assert time.monotonic() - began < pace() * 1.3
    command.send(signal.SIGCONT)
    code, _, err = command.end(5)
    assert code == 76
    assert "was lost" in err or "was not renewed" in err


@pytest.mark.slow
def test_a_stopped_group_ends_the_child_first_thing(pawlock: Pawlock) -> None:
    """A freezer or a debugger stops everything but the child; when it lets go, the child ends at once."""
    command = pawlock.start("run", "--ttl", "1", "job", "--", "sh", "-c", "echo $$; exec sleep 60")
    child = int(command.line())
    between = parent(child)
    for pid in (between, command.pid):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5)
    assert lives(child)
    pawlock.client.lock("job").acquire(timeout=3).release()
    os.kill(command.pid, signal.SIGCONT)
    os.kill(between, signal.SIGCONT)
    eventually(lambda: not lives(child), 0.5)
    assert command.end(5)[0] == 76


@pytest.mark.slow
def test_a_stopped_process_between_is_woken(pawlock: Pawlock) -> None:
    command = pawlock.start("run", "--ttl", "1", "job", "--", "sh", "-c", "echo $$; exec sleep 60")
    child = int(command.line())
    os.kill(parent(child), signal.SIGSTOP)
    pawlock.server.command("DEL", "pawlock:job")
    assert command.end(5)[0] == 76
    assert not lives(child)


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
