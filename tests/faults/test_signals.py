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
            for call in (client.lock("free").acquire, client.lock("free").try_acquire, mine.release):
                with pytest.raises(pawlock.Reentered) as caught:
                    call()
                said.append(caught.value.code)
            mine.check()
            said.extend([bool(mine.lost), mine.remaining() > 0, mine.state])

        with pytest.raises(pawlock.AcquireTimeout):
            _Signalled(client, "held", handler).run()
        assert said == ["REENTERED"] * 3 + [False, True, pawlock.LeaseState.HELD]
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
