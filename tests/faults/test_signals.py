"""Real signals, whose handlers raise or use the client, on top of calls of threads."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import pawlock
from tests.faults.rig import key
from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[2]

# A signal every few milliseconds, each of whose handlers raises what a time limit would, over connects and commands.
STRUCK = textwrap.dedent(
    """
    import random, signal, sys, time
    import pawlock

    url, seconds = sys.argv[1], float(sys.argv[2])
    done = struck = number = 0

    armed = False

    def strike(*_):
        if armed:
            raise TimeoutError("the time is up")

    # What a handler raises in an import is the interpreter's to lose.
    with pawlock.connect(url) as client, client.lock("n"):
        client.inspect("n")
    signal.signal(signal.SIGALRM, strike)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
        client = None
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.04), 0.003)
            armed = True
            client = pawlock.connect(url, ttl=1.0)
            with client.lock(f"n{number}"):
                done += 1
            client.inspect(f"n{number}")
            while True:
                client.lock(f"m{number}").acquire().release()
        except TimeoutError as error:
            assert type(error) is TimeoutError, error
            struck += 1
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            if client is not None:
                client.close()
    print(done, struck)
    """
)


def _run(server: Server, seconds: float) -> tuple[int, int]:
    ended = subprocess.run(
        [sys.executable, "-c", STRUCK, server.url, str(seconds)],
        cwd=ROOT, capture_output=True, text=True, timeout=seconds * 4 + 30, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-2000:])
    done, struck = map(int, ended.stdout.split())
    return done, struck


def test_handlers_that_raise_over_connects_and_commands(server: Server) -> None:
    done, struck = _run(server, 1.0)
    assert done > 0
    assert struck > 0


@pytest.mark.slow
def test_handlers_that_raise_over_connects_and_commands_for_long(server: Server) -> None:
    done, struck = _run(server, 20.0)
    print(f"{done} leases, {struck} calls that a handler ended")
    assert done > 100
    assert struck > 100


class _Signalled:
    """A handler of SIGALRM that runs in the middle of a wait for ``name``."""

    def __init__(self, client: pawlock.Client, name: str, handler: object) -> None:
        self._client, self._name, self._handler = client, name, handler

    def run(self) -> object:
        before = signal.signal(signal.SIGALRM, lambda *_: self._handler())  # type: ignore[operator]
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            return self._client.lock(self._name).acquire(timeout=2)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_a_handler_on_top_of_a_call_is_refused(server: Server) -> None:
    with pawlock.connect(server.url, ttl=5.0) as client, pawlock.connect(server.url) as other:
        holder = other.lock("held").acquire()
        mine = client.lock("mine").acquire()
        said: list[object] = []

        def handler() -> None:
            free = client.lock("free")
            for call in (
                free.acquire,
                free.try_acquire,
                free.__enter__,
                lambda: mine.extend(9),
                mine.release,
            ):
                with pytest.raises(pawlock.Reentered) as caught:
                    call()
                said.append(caught.value.code)
            mine.check()
            mine.beat()
            said.extend([bool(mine.lost), mine.remaining() > 0, mine.state, free.held_by_me()])

        with pytest.raises(pawlock.AcquireTimeout):
            _Signalled(client, "held", handler).run()
        assert said == ["REENTERED"] * 5 + [False, True, pawlock.LeaseState.HELD, False]
        mine.release()
        holder.release()
        client.lock("held").acquire(timeout=2).release()


def test_a_handler_may_close_the_client(server: Server) -> None:
    client = pawlock.connect(server.url, ttl=5.0)
    with pawlock.connect(server.url) as other:
        mine = client.lock("mine").acquire()
        with other.lock("held"):
            with pytest.raises(pawlock.ClientClosed):
                _Signalled(client, "held", client.close).run()
            assert server.command("EXISTS", key("mine")) == 0
            assert not mine
        other.lock("held").acquire(timeout=2).release()


# One of several processes that contend for a name. Each writes to one file what it enters and leaves with: fence and time.
CONTENDER = textwrap.dedent(
    """
    import os, random, signal, sys, time
    import pawlock

    url, path, seconds, ttl = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    log = os.open(path, os.O_WRONLY | os.O_APPEND)
    armed, struck, lease = False, 0, None

    class Limit(Exception):
        pass

    def strike(*_):
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.02))
        if armed:
            raise Limit

    client = pawlock.connect(url)
    lock = client.lock("n", ttl=ttl)
    client.inspect("n")
    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            armed = True
            with lock.acquire(timeout=10) as lease:
                armed = False
                os.write(log, b"+ %d %.6f\\n" % (lease.fence, time.monotonic()))
                armed = True
                time.sleep(random.uniform(0, 0.004))
                armed = False
                if lease:
                    os.write(log, b"- %d %.6f\\n" % (lease.fence, time.monotonic()))
                armed = True
            armed = False
        except Limit:
            armed = False
            lease = None  # struck at the first step of its block's end, it is held for as long as a variable has it
            struck += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    client.close()
    print(struck)
    """
)


def _contend(server: Server, path: Path, seconds: float, ttl: float) -> tuple[int, int, float]:
    path.touch()
    words = [sys.executable, "-c", CONTENDER, server.url, str(path), str(seconds), str(ttl)]
    contenders = [
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    struck = 0
    for contender in contenders:
        said, failed = contender.communicate(timeout=seconds * 4 + 60)
        assert contender.returncode == 0, failed[-2000:]
        struck += int(said)
    inside, before, last, gap = 0, 0, 0.0, 0.0
    entered = 0
    for line in path.read_text().splitlines():
        what, fence, at = line.split()
        if what == "+":
            entered += 1
            assert int(fence) > before, f"fence {fence} after {before}"
            gap = max(gap, float(at) - (last or float(at)))
            before = inside = int(fence)
            last = float(at)
        else:
            assert int(fence) == inside, f"{fence} was held while {inside} had entered"
    return entered, struck, gap


def test_handlers_that_raise_in_contending_processes(server: Server, tmp_path: Path) -> None:
    entered, struck, gap = _contend(server, tmp_path / "log", 1.0, 2.0)
    assert entered > 4
    assert struck > 4
    assert gap <= 2.0 + 2.0


@pytest.mark.slow
def test_handlers_that_raise_in_contending_processes_for_long(server: Server, tmp_path: Path) -> None:
    entered, struck, gap = _contend(server, tmp_path / "log", 20.0, 2.0)
    print(f"{entered} times entered, {struck} calls that a handler ended, {gap:.2f} s the longest gap")
    assert entered > 100
    assert struck > 100
    assert gap <= 2.0 + 2.0


# Children of one parent, each of which takes a name of its own again and again until SIGTERM, whose handler exits.
ENDED = textwrap.dedent(
    """
    import atexit, os, random, signal, sys, time
    import pawlock, redis

    url, number = sys.argv[1], int(sys.argv[2])
    with pawlock.connect(url) as client, client.lock("first"):
        client.inspect("first")
    running, stayed, lost = {}, [], 0

    def leave(*_):
        sys.exit(0)

    def child(name, ready):
        signal.signal(signal.SIGTERM, leave)
        client = pawlock.connect(url)
        lock = client.lock(name, ttl=60)
        lock.acquire().release()
        os.write(ready, b".")
        while True:
            with lock:
                pass

    def reap(server):
        # What a handler raises in a finalizer is dropped by the interpreter: then it takes a second signal.
        global lost
        until = time.monotonic() + 6
        while (found := os.waitpid(-1, os.WNOHANG))[0] == 0:
            time.sleep(0.001)
            if time.monotonic() > until:
                until = time.monotonic() + 6
                lost += 1
                for pid in running:
                    os.kill(pid, signal.SIGTERM)
        pid, status = found
        name = running.pop(pid)
        assert status == 0, (name, status)
        if server.exists(f"pawlock:{name}"):
            stayed.append(name)

    server = redis.Redis.from_url(url)
    for at in range(number):
        mine, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                child(f"n{at}", theirs)
            except SystemExit:
                # What the interpreter does at its end, but for taking itself apart, which takes most of its time.
                atexit._run_exitfuncs()
                os._exit(0)
        running[pid] = f"n{at}"
        os.read(mine, 1)
        os.close(mine)
        os.close(theirs)
        time.sleep(random.uniform(0, 0.004))
        os.kill(pid, signal.SIGTERM)
        if len(running) > 2:
            reap(server)
    while running:
        reap(server)
    print(len(stayed), lost)
    """
)


def _ended(server: Server, number: int) -> tuple[int, int]:
    ended = subprocess.run(
        [sys.executable, "-c", ENDED, server.url, str(number)],
        cwd=ROOT, capture_output=True, text=True, timeout=number / 2 + 60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    stayed, lost = map(int, ended.stdout.split())
    return stayed, lost


def test_sigterm_leaves_no_name_behind(server: Server) -> None:
    stayed, _ = _ended(server, 20)
    assert stayed <= 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sigterm_leaves_hardly_a_name_behind(server: Server) -> None:
    stayed, lost = _ended(server, 2000)
    print(f"{stayed} of 2000 names stayed until their TTL; {lost} signals came in a finalizer and were lost")
    assert stayed <= 20
