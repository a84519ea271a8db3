"""Signals: to the one who waits, to the one who holds, and the ones nobody can catch."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import Command, Pawlock, eventually, lives
from tests.support.pace import pace

TRAP = """
import os, signal, sys, time
def say(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number in (signal.SIGTERM, signal.SIGINT): sys.exit(9)
for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"):
    signal.signal(getattr(signal, "SIG" + name), say)
print(os.getpid(), flush=True)
while True: time.sleep(0.05)
"""


def trapping(pawlock: Pawlock, *options: str) -> tuple[Command, int]:
    command = pawlock.start("run", *options, "job", "--", sys.executable, "-u", "-c", TRAP)
    return command, int(command.line())


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGINT,
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param(signal.SIGQUIT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_wait_at_once(pawlock: Pawlock, number: signal.Signals) -> None:
    with pawlock.client.lock("job"):
        waiter = pawlock.start("run", "job", "--", "echo", "in")
        eventually(lambda: pawlock.waiting("job") == 1)
        began = time.monotonic()
        waiter.send(number)
        # Of what a terminal sends it dies, so that a script around it ends, too.
        died = number in (signal.SIGINT, signal.SIGQUIT)
        assert waiter.end() == (-number if died else 128 + number, "", "")
        assert time.monotonic() - began < pace() * 1.5
        assert pawlock.waiting("job") == 0
        assert pawlock.left_over() == ["pawlock:job"]


@pytest.mark.slow
def test_a_signal_before_there_is_anything_to_stop(pawlock: Pawlock) -> None:
    with pawlock.client.lock("job"):
        for delay in (0.05, 0.15, 0.2, 0.25, 0.3, 0.4):
            waiter = pawlock.start("run", "job", "--", "echo", "in")
            time.sleep(delay)
            waiter.process.terminate()
            out, _ = waiter.process.communicate(timeout=15)
            assert waiter.process.returncode in (143, -signal.SIGTERM)
            assert out == ""
        assert pawlock.waiting("job") == 0


def test_signals_are_passed_on(pawlock: Pawlock) -> None:
    command, _ = trapping(pawlock)
    for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGWINCH"):
        command.send(getattr(signal, name))
        assert command.line() == name
    command.send(signal.SIGTERM)
    assert command.end() == (9, "SIGTERM\n", "")
    assert pawlock.left_over() == []


def test_a_signal_that_ends_the_child_is_told(pawlock: Pawlock) -> None:
    command = pawlock.hold("job")
    command.send(signal.SIGINT)
    assert command.end()[0] == -signal.SIGINT
    assert pawlock.left_over() == []


def test_what_was_ignored_stays_ignored(pawlock: Pawlock) -> None:
    def nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    script = (
        "import signal; print(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGPIPE).name)"
    )
    argv = [
        sys.executable,
        "-m",
        "pawlock",
        "run",
        "job",
        "--",
        "sh",
        "-c",
        f"trap '' TERM; exec {sys.executable} -c '{script}'",
    ]
    env = {**os.environ, "PAWLOCK_URL": pawlock.server.url}
    done = subprocess.run(
        argv, env=env, preexec_fn=nohup, capture_output=True, text=True, timeout=15, check=False
    )
    # Python itself ignores SIGPIPE: what counts is that HUP came through.
    assert done.stdout == "SIG_IGN SIG_IGN\n"


def test_the_child_starts_with_clean_signals_and_inherits_no_files(pawlock: Pawlock) -> None:
    script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; exec ls /proc/self/fd"
    code, out, _ = pawlock.run("run", "job", "--", "sh", "-c", script)
    assert code == 0
    # 32 and 33 belong to the C library: whoever starts the tests may have left them ignored.
    reserved = 1 << 31 | 1 << 32
    blocked, ignored, *files = out.splitlines()
    assert [int(line.split()[1], 16) & ~reserved for line in (blocked, ignored)] == [0, 0]
    assert files == ["0", "1", "2", "3"]  # 3 is the listing's own


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a child with its parent on Linux only")
def test_the_child_dies_with_a_killed_command(pawlock: Pawlock) -> None:
    """Also one that ends at nothing else; the lock is free after its TTL."""
    script = "trap '' TERM INT HUP; echo $$; while :; do sleep 0.1; done"
    command = pawlock.start("run", "--ttl", "1", "job", "--", "sh", "-c", script)
    child = int(command.line())
    command.process.kill()
    eventually(lambda: not lives(child), 3)
    pawlock.client.lock("job").acquire(timeout=5).release()
