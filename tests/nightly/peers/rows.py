"""The fault rows that any lock can be put under: `python -m tests.nightly.peers.rows ROW LOCK` runs one of them.

A row is survived if nothing in it goes wrong; else the text says what did. Where a lock does not offer what the row is
about, it does not apply.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tests.nightly.peers.locks import CONTENDERS, Contender
from tests.support.proxy import Proxy, Request
from tests.support.servers import Server

Make = Callable[..., Contender]
TTL = 8.0


class NotApplicable(Exception):
    """The lock does not offer what the row is about."""


class Fails(Exception):
    """What went wrong."""


class Rig:
    """A server, a proxy before it, and locks of one kind on either.

    Args:
        kind: Of which library.
    """

    def __init__(self, kind: type[Contender], server: Server, proxy: Proxy) -> None:
        self.kind, self.server, self.proxy = kind, server, proxy

    def behind(self, ttl: float | None = TTL, **options: bool) -> Contender:
        """A lock whose client goes through the proxy, connected and taught."""
        self._warm(self.proxy.port)
        return self.kind(self.proxy.port, "n", ttl, **options)

    def near(self, ttl: float | None = TTL, **options: bool) -> Contender:
        """A lock straight at the server."""
        return self.kind(self.server.port, "n", ttl, **options)

    def _warm(self, port: int) -> None:
        # The scripts are known then, so that what the proxy counts is what the row thinks of.
        other = self.kind(port, "warm", TTL)
        other.acquire(1)
        other.release()

    def about(self, lock: Contender) -> Callable[[Request], bool]:
        """Requests of the lock's own, not those that connect or load."""
        name = lock.name
        return lambda request: (
            request.command in {"SET", "EVAL", "EVALSHA", "DEL"}
            and any(part in (name.encode(), lock.key.encode()) for part in request.args[1:])
        )

    def value(self, lock: Contender) -> object:
        """What the key of a lock holds."""
        return self.server.command("GET", lock.key)

    def until(self, condition: Callable[[], object], timeout: float) -> bool:
        """Wait for something; whether it came about."""
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def must(condition: object, text: str) -> None:
    """Say what is wrong."""
    if not condition:
        raise Fails(text)


def _acquired_or_clean(rig: Rig, lock: Contender) -> None:
    told = ""
    try:
        got = lock.acquire(2.5)
    except Exception as error:  # noqa: BLE001 - any error is an honest answer, if nothing is left behind
        got, told = False, type(error).__name__
    if got:
        must(lock.held(), "it says held, and the lock is not")
        return
    gone = rig.until(lambda: rig.value(lock) is None, 1.5)
    must(gone, f"it says {told or 'not acquired'}, and its own key stays for the ttl")


def row_1(rig: Rig) -> None:
    lock = rig.behind()
    rig.proxy.swallow_reply(rig.about(lock))
    _acquired_or_clean(rig, lock)


def row_2(rig: Rig) -> None:
    lock = rig.behind()
    rig.proxy.kill_on_reply(rig.about(lock))
    _acquired_or_clean(rig, lock)


def row_5(rig: Rig) -> None:
    lock = rig.behind()
    must(lock.acquire(1), "it cannot be acquired")
    rig.proxy.swallow_reply(rig.about(lock))
    try:
        lock.release()
    except Exception as error:  # noqa: BLE001 - any error is an honest answer, but one
        denied = any(
            word in type(error).__name__ for word in ("NotOwned", "NotHeld", "NotAcquired", "Unlocked")
        )
        must(not denied, f"{type(error).__name__}, although it was the owner and has released")
    must(rig.until(lambda: rig.value(lock) is None, 1.5), "the key stays")


def row_8(rig: Rig) -> None:
    lock = rig.behind()
    must(lock.acquire(1), "it cannot be acquired")
    rule = rig.proxy.duplicate_request_late(rig.about(lock))
    lock.release()
    second = rig.near()
    must(second.acquire(1), "the next one does not get it")
    held = rig.value(second)
    rule.release()
    rule.wait(5)
    must(rig.value(second) == held, "a late copy of the old release freed the next owner's lock")


def row_9(rig: Rig) -> None:
    lock = rig.behind(1.0)
    rule = rig.proxy.hold_reply(rig.about(lock), seconds=1.5)
    try:
        got = lock.acquire(3)
    except Exception:  # noqa: BLE001 - any error is an honest answer
        return
    must(rule.hits, "the reply was not held")
    must(
        not got or rig.value(lock) is not None, "it says held by a reply that came after the lease had ended"
    )


def row_10(rig: Rig) -> None:
    if not rig.kind.asyncio:
        raise NotApplicable("no asyncio class")
    lock = rig.behind()
    rule = rig.proxy.hold_reply(rig.about(lock), seconds=0.6)

    async def main() -> None:
        acquire = lock.acquire_async()
        task = asyncio.ensure_future(acquire())
        while not rig.proxy.requests(rig.about(lock)):  # noqa: ASYNC110 - the proxy is of another thread
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(1.0)

    asyncio.run(main())
    must(rule.hits, "the reply was not held")
    must(rig.value(lock) is None, "a cancelled acquire leaves its key for the ttl")


def row_12(rig: Rig) -> None:
    lock = rig.behind()
    rule = rig.proxy.hold_reply(rig.about(lock), seconds=0.6)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.25)
    try:
        lock.acquire(3)
    except KeyboardInterrupt:
        time.sleep(1.0)
        must(rule.hits, "the reply was not held")
        must(rig.value(lock) is None, "an interrupted acquire leaves its key for the ttl")
    else:
        raise Fails("Ctrl-C was swallowed")


_HOLD = """
import sys, time
from tests.nightly.peers.locks import CONTENDERS
lock = CONTENDERS[sys.argv[1]](int(sys.argv[2]), "n", 2.0, renew=sys.argv[3] == "renew")
assert lock.acquire(1)
print("held", flush=True)
sys.stdin.readline()
print(lock.held(), flush=True)
time.sleep(30)
"""


def _elsewhere(rig: Rig, *, renew: bool) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _HOLD, rig.kind.label, str(rig.server.port), "renew" if renew else ""]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    must(process.stdout.readline() == "held\n", "the other process cannot acquire")
    return process


def row_17(rig: Rig) -> None:
    process = _elsewhere(rig, renew=rig.kind.renews)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.send_signal(signal.SIGSTOP)
        second = rig.near()
        must(second.acquire(6), "the name does not become free")
        held = rig.value(second)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        must(process.stdout.readline().strip() == "False", "on resume it says that the lock is still its own")
        time.sleep(1.0)
        must(rig.value(second) == held, "on resume it took the lock from its new owner")
    finally:
        process.kill()
        process.communicate()


def row_21(rig: Rig) -> None:
    if not rig.kind.renews:
        raise NotApplicable("it does not renew")
    lock = rig.behind(2.0, renew=True)
    must(lock.acquire(1), "it cannot be acquired")
    rig.proxy.reset(lambda request: request.command in {"EVAL", "EVALSHA"})
    rig.proxy.reset_all()
    time.sleep(4.0)
    must(rig.value(lock) is not None, "one failed renewal was the last: the lease ran out")


def row_22(rig: Rig) -> None:
    lock = rig.near(2.0, renew=rig.kind.renews)
    must(lock.acquire(1), "it cannot be acquired")
    rig.server.command("DEL", lock.key)
    time.sleep(2.5)
    must(rig.value(lock) is None, "it takes the lock again without asking")
    must(lock.told(), "its holder is not told")


def row_29(rig: Rig) -> None:
    lock = rig.near(20.0)
    must(lock.acquire(1), "it cannot be acquired")
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    must(rig.value(lock) is not None, "a forked child releases its parent's lock")


def row_30(rig: Rig) -> None:
    lock = rig.near()
    must(lock.acquire(1), "it cannot be acquired")
    if not hasattr(lock.lock, "release"):
        # What is shared holds nothing: the lease is an object of its own, which its holder was given.
        return

    def release() -> None:
        with suppress(Exception):
            lock.release()

    thread = threading.Thread(target=release)
    thread.start()
    thread.join()
    must(rig.value(lock) is not None, "another thread releases it by the shared object")


def row_32(rig: Rig) -> None:
    process = _elsewhere(rig, renew=rig.kind.renews)
    process.kill()
    process.communicate()
    began = time.monotonic()
    second = rig.near()
    must(second.acquire(6), "a killed holder's name does not become free")
    must(time.monotonic() - began < 3.2, f"it took {time.monotonic() - began:.1f} s after a ttl of 2 s")


def row_34(rig: Rig) -> None:
    lock = rig.near()
    must(lock.acquire(1), "it cannot be acquired")
    rig.server.command("SCRIPT", "FLUSH")
    lock.release()
    must(rig.value(lock) is None, "the key stays")


def row_40(rig: Rig) -> None:
    lock, other = rig.near(), rig.kind(rig.server.port, "other", TTL)
    must(lock.acquire(1), "it cannot be acquired")
    rig.server.command("CONFIG", "SET", "maxmemory", "1")
    try:
        got = other.acquire(1)
    except Exception as error:  # noqa: BLE001 - it must be an error, and say why
        must(
            "memory" in str(error).lower() or "OutOfMemory" in type(error).__name__, f"it says {error!r:.80}"
        )
    else:
        raise Fails(f"it says {'held' if got else 'held by another'} while the server has no memory left")
    try:
        lock.release()
    except Exception as error:  # noqa: BLE001 - whatever it is, the lock was not released
        raise Fails(f"a server without memory left refuses the release: {type(error).__name__}") from None
    must(rig.value(lock) is None, "the key stays")


def row_42(rig: Rig) -> None:
    lock = rig.near()
    must(lock.acquire(1), "it cannot be acquired")
    rig.server.command("FLUSHALL")
    try:
        lock.release()
    except Exception:  # noqa: BLE001 - it says so, however
        return
    raise Fails("a release after FLUSHALL says that all was well")


def row_45(rig: Rig) -> None:
    lock = rig.near()
    rig.server.command("HSET", lock.key, "precious", "1")
    try:
        got = lock.acquire(0.5)
    except Exception:  # noqa: BLE001 - it says so
        got = False
    else:
        must(got, "it says that somebody holds the lock: the key holds something else")
    must(rig.server.command("TYPE", lock.key) == "hash", "it deletes what is not its own")
    must(not got, "it says held, and the key is not its own")


def row_46(rig: Rig) -> None:
    lock = rig.near(None)
    must(lock.acquire(1), "it cannot be acquired")
    must(int(str(rig.server.command("PTTL", lock.key))) != -1, "by default the lock never expires")


def row_47(rig: Rig) -> None:
    if not rig.kind.fences:
        raise Fails("it has no fencing numbers")
    lock = rig.near()
    fences: list[int] = []
    for _ in range(2):
        must(lock.acquire(1), "it cannot be acquired")
        fences.append(lock.fence())
        lock.release()
        rig.server.command("FLUSHALL")
    must(fences[1] > fences[0], "after the server forgot it the fence falls")


def row_50(rig: Rig) -> None:
    lock = rig.near()
    must(lock.acquire(1), "it cannot be acquired")
    rig.server.command("CLIENT", "KILL", "TYPE", "normal")
    lock.release()
    must(rig.value(lock) is None, "the key stays")
    rig.server.command("CLIENT", "KILL", "TYPE", "normal")
    must(lock.acquire(1), "it cannot be acquired again")


_WAIT = """
import sys
from tests.nightly.peers.locks import CONTENDERS
lock = CONTENDERS[sys.argv[1]](int(sys.argv[2]), "n", 8.0)
print("ready", flush=True)
sys.stdin.readline()
lock.acquire(8)
sys.stdin.readline()
"""


def row_62(rig: Rig) -> None:
    lock = rig.near()
    words = [sys.executable, "-c", _WAIT, rig.kind.label, str(rig.proxy.port)]
    waiters = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)
    ]
    try:
        for one in waiters:
            assert one.stdout is not None
            must(one.stdout.readline() == "ready\n", "a waiter did not start")
        # Only now: eight processes may take longer to start than the lease lasts.
        must(lock.acquire(1), "it cannot be acquired")
        for one in waiters:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        time.sleep(2.0)
        before = len(rig.proxy.requests())
        time.sleep(1.0)
        lock.release()
        time.sleep(0.5)
        asked = len(rig.proxy.requests()) - before
    finally:
        for one in waiters:
            one.kill()
            one.communicate()
    must(asked <= 5 * len(waiters), f"{len(waiters)} waiters send {asked} requests in 1.5 s")


def row_66(rig: Rig) -> None:
    lock, other = rig.near(), rig.near()
    must(lock.acquire(1), "it cannot be acquired")
    began = time.monotonic()
    got = other.acquire(0.3)
    took = time.monotonic() - began
    must(took < 2, f"a wait of at most 0.3 s takes {took:.1f} s")
    must(not got, "two hold it")
    lock.release()
    must(rig.until(lambda: rig.value(lock) is None, 1.0), "a waiter that gave up was granted the lock")
    must(rig.near().acquire(1), "a waiter that gave up stands in the way")


def row_73(rig: Rig) -> None:
    lock, other = rig.near(), rig.near()
    must(lock.acquire(1), "it cannot be acquired")
    lock.release()
    must(other.acquire(1), "the next one does not get it")
    held = rig.value(other)
    try:
        lock.release()
    except Exception:  # noqa: BLE001 - it says so
        must(rig.value(other) == held, "a second release frees the next owner's lock")
        return
    raise Fails("a second release says that all was well")


ROWS: dict[int, Callable[[Rig], None]] = {
    int(name.removeprefix("row_")): function
    for name, function in list(globals().items())
    if name.startswith("row_")
}


def run(row: int, label: str) -> dict[str, str]:
    """Run one; what came of it: ``survived``, ``fails`` or ``n/a``, and why."""
    with Server(tcp=True, args=["--enable-debug-command", "local"]) as server, Proxy(server) as proxy:
        try:
            ROWS[row](Rig(CONTENDERS[label], server, proxy))
        except Fails as failure:
            return {"outcome": "fails", "why": str(failure)}
        except NotApplicable as reason:
            return {"outcome": "n/a", "why": str(reason)}
        except Exception as error:  # noqa: BLE001 - whatever a library raises where it should have worked
            return {"outcome": "fails", "why": f"{type(error).__name__}: {error}"[:120]}
        return {"outcome": "survived", "why": ""}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), sys.argv[2])), flush=True)
    # Threads of a library that still wait for something keep nobody.
    os._exit(0)
