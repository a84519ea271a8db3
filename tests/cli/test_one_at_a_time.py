"""One command at a time, judged by a witness that knows nothing of pawlock: a lock of the kernel, held until death."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.conftest import PAWLOCK, Command, Pawlock, default_signals, environment, eventually

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs flock, process groups and signals")

# Takes the witness for as long as it lives. It does not end at TERM.
WITNESS = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
print("in", flush=True)
time.sleep(60)
"""


class Grouped(Command):
    """A `pawlock` that leads a process group, as a shell starts a job."""

    def __init__(self, arguments: Sequence[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [*PAWLOCK, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=default_signals,  # noqa: PLW1509  # the tests have no threads
            start_new_session=True,
        )


def nothing(_: Pawlock, __: Command) -> None:
    """What ends the first command is its own option."""


def kill_the_wrapper(_: Pawlock, first: Command) -> None:
    first.process.kill()


def kill_the_group(_: Pawlock, first: Command) -> None:
    os.killpg(first.pid, signal.SIGKILL)


def refuse_writes(pawlock: Pawlock, _: Command) -> None:
    pawlock.server.command("CLIENT", "PAUSE", "3500", "WRITE")


TROUBLE: dict[str, tuple[Sequence[str], Callable[[Pawlock, Command], None]]] = {
    "at max_hold, with a short lease": (("--ttl", "1.5", "--max-hold", "1"), nothing),
    "at max_hold, a long time after TERM": (
        ("--ttl", "4.5", "--max-hold", "1", "--kill-after", "1.5"),
        nothing,
    ),
    "at max_hold, although a loss is only told": (
        ("--ttl", "1", "--max-hold", "1", "--kill-after", "2", "--on-lost", "warn"),
        nothing,
    ),
    "the wrapper is killed": (("--ttl", "3"), kill_the_wrapper),
    "the group of the wrapper is killed": (("--ttl", "3"), kill_the_group),
    "the server is read-only": (("--ttl", "3"), refuse_writes),
    "the server is read-only, a long time after TERM": (
        ("--ttl", "3", "--kill-after", "1"),
        refuse_writes,
    ),
}


OFTEN = {
    "at max_hold, a long time after TERM",
    "the group of the wrapper is killed",
    "the server is read-only, a long time after TERM",
}


def _cases() -> Iterator[object]:
    """Each trouble with both commands, where both have the options."""
    for trouble, (options, _) in TROUBLE.items():
        yield pytest.param("run", trouble, marks=[pytest.mark.slow] * (trouble not in OFTEN))
        if not {"--max-hold", "--on-lost"} & {*options}:
            yield pytest.param("run --elect", trouble, marks=pytest.mark.slow)


@pytest.mark.parametrize(("verb", "trouble"), list(_cases()))
def test_the_next_holder_does_not_meet_the_command_before(
    pawlock: Pawlock, tmp_path: Path, verb: str, trouble: str
) -> None:
    options, happen = TROUBLE[trouble]
    witness = tmp_path / "witness"
    first = Grouped(
        [*verb.split(), *options, "job", "--", sys.executable, "-S", "-c", WITNESS, str(witness)],
        environment(PAWLOCK_URL=pawlock.server.url),
    )
    pawlock.commands.append(first)
    assert first.line() == "in"

    def follow() -> None:
        client = pawlock.client
        made = client.lock("job").acquire if verb == "run" else client.election("job").campaign
        with made(timeout=30), witness.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with ThreadPoolExecutor(1) as pool:
        follower = pool.submit(follow)
        if happen is not nothing:  # it goes on its own, and the second one may come late
            eventually(lambda: pawlock.waiting("job" if verb == "run" else "%election:job") == 1)
        happen(pawlock, first)
        follower.result(40)
    if first.process.poll() is None:
        os.killpg(first.pid, signal.SIGCONT)
    if verb != "run":  # it stands again
        first.process.terminate()
    elif happen is not kill_the_wrapper and happen is not kill_the_group:
        assert first.end()[0] == 76


def test_kill_after_must_fit_into_the_lease(pawlock: Pawlock) -> None:
    """What fits: tests/unit/test_kill_after.py."""
    code, _, err = pawlock.run("run", "--ttl", "10", "--kill-after", "5", "job", "--", "echo", "in")
    assert code == 64
    assert "--ttl 15 or more, or --kill-after 3.33 or less" in err
    assert pawlock.left_over() == []


def test_it_is_renewed_until_the_command_is_gone(pawlock: Pawlock) -> None:
    """At max_hold the command may take longer to end than a lease without renewals lives."""
    script = "trap 'sleep 2; echo done; exit 3' TERM; echo in; sleep 60 & wait"
    options = ("--ttl", "1", "--max-hold", "0.5", "--kill-after", "10", "--on-lost", "warn")
    command = pawlock.start("run", *options, "job", "--", "sh", "-c", script)
    assert command.line() == "in"
    code, out, err = command.end()
    assert (code, out) == (76, "done\n")
    assert err == "pawlock: the lease of 'job' was held for 0.5 s (max_hold): ending the command\n"
    assert pawlock.left_over() == []
