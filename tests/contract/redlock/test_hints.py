"""Waiters are told by the masters that a name may be free; where they are not, they try again after a pause."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from types import FrameType
from typing import Any

import pytest

import pawlock
from pawlock.core.acquire import candidate
from pawlock.core.protocol.outcomes import AS_ASKED, Busy, Present
from pawlock.core.protocol.quorum import WatchCall, watch_call
from pawlock.core.protocol.runtime import FIRST_RID, Fault, FaultKind
from pawlock.core.quorum.hints import Hints
from pawlock.primitives.redlock import QuorumMutex
from pawlock.transport.node import NodeLink, Question
from pawlock.transport.wire import new_reader, pack
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import APIS, connect, done
from tests.contract.redlock.conftest import Cluster
from tests.support.pace import pace
from tests.support.servers import Server

each_api = pytest.mark.parametrize("api", APIS)

PATIENT = pawlock.RedlockOptions(fresh=True, node_timeout=1.0, retry_delay=60.0)


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter tries again after a minute, if it is told nothing."""

    def whole(attempt: int, random: float, *, base: float) -> float:
        return base

    monkeypatch.setattr(candidate, "_LONGEST_PAUSE", 60.0)
    monkeypatch.setattr(candidate, "full_jitter", whole)


def count(server: Server, command: str, what: str = "calls") -> int:
    """How often a command was carried out, or refused, since the last reset."""
    stats = server.command("INFO", "commandstats")
    assert isinstance(stats, bytes)
    found = re.search(rf"cmdstat_{re.escape(command)}:calls=(\d+),.*?rejected_calls=(\d+)", stats.decode())
    return 0 if found is None else int(found[1 if what == "calls" else 2])


class Waiter:
    """Another client, in a thread of its own, that takes a lock and gives it back."""

    def __init__(self, api: str, urls: list[str], lock_of: Callable[[Any], Any], **options: Any) -> None:
        self._api = api
        self._lock_of = lock_of
        self.client: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.error: BaseException | None = None
        self.had = False
        self._options = {"redlock": PATIENT, **options}
        self._urls = urls
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        try:
            if self._api == "asyncio":
                asyncio.run(self._run())
            else:
                with contextlib.suppress(StopIteration):
                    self._run().send(None)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    async def _run(self) -> None:
        if self._api == "asyncio":
            self.loop = asyncio.get_running_loop()
        self.client = connect(self._api, self._urls, **self._options)
        try:
            await self._connect_to_all()
            lease = await done(self._lock_of(self.client).acquire())
            self.had = True
            await done(lease.release())
        finally:
            await done(self.client.close())

    async def _connect_to_all(self) -> None:
        """A majority is enough to take a lock; later on each node is to be asked."""
        for _ in range(500):
            lease = await done(self.client.lock("warm").acquire())
            answers = {vote.answer for vote in lease.quorum.nodes}
            await done(lease.release())
            if answers <= {"granted", "no answer yet"}:
                return
        raise AssertionError("some node was never asked")

    def end(self) -> None:
        """It must have had the lock soon: far sooner than its pause."""
        self._thread.join(20 * pace())
        assert not self._thread.is_alive(), "nobody woke the waiter"
        if self.error is not None:
            raise self.error
        assert self.had


def reset(cluster: Cluster) -> None:
    for server in cluster.servers:
        server.command("CONFIG", "RESETSTAT")


def told(cluster: Cluster, at_least: int = 5) -> None:
    """Wait until a waiter asked so many nodes to tell it."""
    eventually(
        lambda: sum(count(server, "client|caching") > 0 for server in cluster.servers) >= at_least,
        "it listens",
    )


def plain(client: Any) -> Any:
    return client.lock("n")


@each_api
def test_a_release_wakes_a_waiter_of_another_client(five: Cluster, api: str, long_pauses: None) -> None:
    with five.client(redlock=PATIENT) as holder:
        lease = holder.lock("n").acquire()
        reset(five)
        waiter = Waiter(api, five.urls, plain)
        told(five)
        asked = [count(server, "evalsha") for server in five.servers]
        lease.release()
        waiter.end()
        # One try, and no more: what came before it was one refusal, and what comes behind it a release.
        tries = sorted(count(server, "hmget") for server in five.servers)
        assert tries[2] <= 6, (asked, tries)
        assert max(count(server, "client|tracking") for server in five.servers) == 1


@each_api
@pytest.mark.usefixtures("long_pauses")
def test_the_expiry_of_a_dead_holder_wakes_a_waiter(five: Cluster, api: str) -> None:
    for server in five.servers:
        server.command("SET", "pawlock:n", "somebody-else", "PX", "700")
    reset(five)
    waiter = Waiter(api, five.urls, plain)
    waiter.end()
    assert sum(count(server, "client|caching") for server in five.servers) >= 3


@each_api
@pytest.mark.usefixtures("long_pauses")
def test_a_delete_by_somebody_else_wakes_a_waiter_once_a_majority_is_free(five: Cluster, api: str) -> None:
    for server in five.servers:
        server.command("SET", "pawlock:n", "somebody-else")
    reset(five)
    waiter = Waiter(api, five.urls, plain)
    told(five)
    before = count(five.servers[4], "evalsha")
    for server in five.servers[:2]:
        server.command("DEL", "pawlock:n")
    # Two of five are not enough for anybody: nobody is asked for that.
    threading.Event().wait(0.1)
    assert count(five.servers[4], "evalsha") == before
    five.servers[2].command("DEL", "pawlock:n")
    waiter.end()


@each_api
@pytest.mark.parametrize("side", ["read", "write"])
@pytest.mark.usefixtures("long_pauses")
def test_readers_and_writers_are_woken(five: Cluster, api: str, side: str) -> None:
    with five.client(redlock=PATIENT) as holder:
        rwlock = holder.rwlock("n")
        lease = (rwlock.write if side == "read" else rwlock.read).acquire()
        reset(five)
        waiter = Waiter(api, five.urls, lambda client: getattr(client.rwlock("n"), side))
        told(five)
        lease.release()
        waiter.end()


@each_api
def test_where_the_user_may_not_be_told_a_waiter_tries_again(own_three: Cluster, api: str) -> None:
    for server in own_three.servers:
        server.command("ACL", "SETUSER", "default", "-client|tracking", "-client|caching")
    options = pawlock.RedlockOptions(fresh=True, node_timeout=1.0)
    with own_three.client(redlock=options) as holder:
        lease = holder.lock("n").acquire()
        reset(own_three)
        waiter = Waiter(api, own_three.urls, plain, redlock=options)
        # Several pauses long nobody tells it anything.
        eventually(lambda: count(own_three.servers[0], "evalsha") >= 8, "it tries again")
        lease.release()
        waiter.end()
        for what in ("client|tracking", "client|caching"):
            asked = [count(server, what, "rejected") for server in own_three.servers]
            # Each connection asked once, and then no more; on a busy machine one may be made anew, or still be in use.
            assert sum(asked) >= 1
            assert max(asked) <= 2


@each_api
@pytest.mark.usefixtures("long_pauses")
def test_nodes_that_tell_nothing_are_not_needed(own_five: Cluster, api: str) -> None:
    for server in own_five.servers[:2]:
        server.command("ACL", "SETUSER", "default", "-client|tracking")
    with own_five.client(redlock=PATIENT) as holder:
        lease = holder.lock("n").acquire()
        reset(own_five)
        waiter = Waiter(api, own_five.urls, plain)
        told(own_five, 3)
        eventually(lambda: count(own_five.servers[4], "client|caching"), "the last one too")
        lease.release()
        waiter.end()


@each_api
@pytest.mark.usefixtures("long_pauses")
def test_a_client_that_is_closed_lets_its_listener_go(five: Cluster, api: str) -> None:
    with five.client(redlock=PATIENT) as holder, holder.lock("n"):
        reset(five)
        waiter = Waiter(api, five.urls, plain)
        told(five)
        if api == "threads":
            waiter.client.close()
        else:
            assert waiter.loop is not None
            closing = asyncio.run_coroutine_threadsafe(waiter.client.close(), waiter.loop)
            with contextlib.suppress(CancelledError):
                # The loop ends with its waiter.
                closing.result(20 * pace())
        with pytest.raises(pawlock.ClientClosed):
            waiter.end()


@pytest.mark.usefixtures("long_pauses")
def test_a_task_that_is_cancelled_listens_no_more(five: Cluster) -> None:
    async def scenario() -> None:
        async with five.aclient(redlock=PATIENT) as holder, five.aclient(redlock=PATIENT) as other:
            lease = await holder.lock("n").acquire()
            reset(five)
            tasks = [asyncio.create_task(other.lock("n").acquire()) for _ in range(2)]
            await asyncio.to_thread(told, five)
            tasks[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            await lease.release()
            lease = await asyncio.wait_for(tasks[1], 20 * pace())
            group = other._engine().runtime._group  # type: ignore[attr-defined]
            assert not any(link._watchers for link in group._links if link is not None)
            await lease.release()

    asyncio.run(scenario())


@pytest.mark.usefixtures("long_pauses")
def test_a_signal_handler_on_top_of_a_listener_takes_locks_of_its_own(five: Cluster) -> None:
    ran: list[bool] = []
    main = threading.get_ident()
    with five.client(redlock=PATIENT) as holder, five.client(redlock=PATIENT) as client:
        lease = holder.lock("n").acquire()
        reset(five)

        def handler(number: int, frame: FrameType | None) -> None:
            with client.lock("other"):
                ran.append(True)

        def later() -> None:
            told(five)
            signal.pthread_kill(main, signal.SIGUSR1)
            eventually(lambda: ran, "the handler ran")
            lease.release()

        before = signal.signal(signal.SIGUSR1, handler)
        thread = threading.Thread(target=later, daemon=True)
        try:
            thread.start()
            client.lock("n").acquire(timeout=50).release()
        finally:
            signal.signal(signal.SIGUSR1, before)
            thread.join(20 * pace())
    assert ran


# What comes in between, byte by byte ------------------------------------------------------------------------------


class _Socket:
    """Gives what a test put in, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def recv(self, _: int) -> bytes:
        if not self.pieces:
            raise BlockingIOError
        return self.pieces.pop(0)


class _Votes:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def add(self, index: int, outcome: Any) -> bool:
        self.seen.append((index, outcome))
        return False

    late = add

    def patience(self) -> float:
        return 0.0

    def reply(self) -> Any:
        return []


def link_over(sock: _Socket) -> NodeLink:
    """A link of the only node that reads from there."""
    link = NodeLink.__new__(NodeLink)
    link.__dict__.update(
        index=0, dead=False, tracks=None, native=None, slowest=0.0, heard_at=0.0, unsent=b"",
        _reader=new_reader(), _half=None, _whole=True, _secure=False, _watchers={}, _read=sock.recv,
        numbers=iter(range(FIRST_RID + 1, FIRST_RID + 100)),
    )  # fmt: skip
    link.pending = deque()
    return link


PUSH = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$6\r\npawlock:n\r\n"
EVERYTHING = b">2\r\n$10\r\ninvalidate\r\n_\r\n"


@pytest.mark.parametrize("cut", range(1, 70, 7))
@pytest.mark.parametrize("push", [PUSH, EVERYTHING])
def test_a_hint_between_answers_is_taken_for_none_of_them(push: bytes, cut: int) -> None:
    sock = _Socket()
    link = link_over(sock)
    hints, votes = Hints([None]), _Votes()
    call = watch_call(b"pawlock:n")
    link.watch(call, hints, 0.0)
    link.pending.clear()
    grant = QuorumMutex("lock", "n", "pawlock:n").grant("t@h", 1000, 1, 0, clock=False, wait=True)
    expected: list[bytes] = []
    for rid in (FIRST_RID + 1, FIRST_RID + 2):
        yes = b"*2\r\n$1\r\nH\r\n$10\r\n%d\r\n" % rid
        question = Question(votes, 1, 0.0, 1.0)  # type: ignore[arg-type]
        question.plain = AS_ASKED
        link.pending.append((rid, grant, question, False, yes))
        expected.append(yes)
    stream = expected[0] + push + expected[1]
    sock.pieces = [stream[:cut], stream[cut:]]
    while sock.pieces:
        link.pull(0.0)
    assert [index for index, _ in votes.seen] == [0, 0]
    assert all(outcome is AS_ASKED for _, outcome in votes.seen)
    assert not link.pending
    assert hints.due
    assert link._whole


def test_what_a_watch_sends_and_what_refuses_it() -> None:
    link = link_over(_Socket())
    call = watch_call(b"a", b"bc")
    assert isinstance(call, WatchCall)
    assert call.pack(7) == pack(b"CLIENT", b"CACHING", b"YES") + pack(b"EXISTS", b"a", b"bc")
    hints = Hints([None])
    first = link.watch(call, hints, 0.0)
    assert first.startswith(pack(b"CLIENT", b"TRACKING", b"ON", b"OPTIN", b"NOLOOP"))
    assert link.watch(call, hints, 0.0) == b""
    link.unwatch(call.keys, hints)
    link.unwatch(call.keys, hints)
    assert not link._watchers


def test_a_majority_must_say_so() -> None:
    rung: list[bool] = []
    hints = Hints([None] * 5)
    hints.on_due(lambda: rung.append(True))
    hints.add(0, Present(0))
    hints.add(1, Present(1))
    hints.hint(0)
    hints.hint(2)
    assert (hints.due, len(rung)) == (False, 0)
    hints.hint(1)
    assert (hints.due, len(rung)) == (True, 1)


def test_a_master_without_a_vote_does_not_count() -> None:
    """One that is barred after a restart says all the time that the name is free."""
    barred, slow = (
        Fault(FaultKind.UNREACHABLE, "restarted"),
        Fault(FaultKind.UNANSWERED, "late", maybe_applied=True),
    )
    hints = Hints([barred, slow, Busy(5, foreign=False, holder="x")])
    hints.hint(0)
    hints.hint(2)
    assert not hints.due
    hints.hint(1)
    assert hints.due
