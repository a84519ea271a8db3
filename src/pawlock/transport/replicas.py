"""Scripts, one small write, and ``WAIT``, in one go on one connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Sequence
from time import monotonic
from typing import Any, TypeVar

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.runtime import Acknowledged, Call, Fault, FaultKind, Wakeup
from pawlock.topology.cluster import first_key
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.conn import Conn, Request
from pawlock.transport.link import Link
from pawlock.transport.mux import Mux, open_mux
from pawlock.transport.wire import Handshake, ReplyError

__all__ = ["ReplicaPool", "ask_on"]

_SHARE = 0.75
"""Of the time for an answer, what the replicas may take of it."""

_KEPT = 8
_ATTACHED = re.compile(rb"connected_slaves:(\d+)")

R = TypeVar("R", bound=Request)


async def _ask(
    conn: Conn[R],
    exchange: Callable[[Sequence[tuple[R, bytes]], float], Awaitable[None]],
    calls: Sequence[Call],
    replicas: int,
    timeout: float,
) -> list[Acknowledged]:
    """Run scripts of one server, and count the replicas that have what they wrote.

    ``WAIT`` covers what its own connection wrote. A grant that another's script made (a hand-off), and a resend that
    finds its token holding, write nothing; so a write goes before it: it stands behind all of them in the stream of
    replication, wherever they came from. A master that never had a replica numbers no writes, and counts one that comes
    while it waits, whatever that has by then: so only those count that were there before.
    """
    end = monotonic() + timeout
    info = conn.command(b"INFO", b"replication")
    sent = [conn.send(call) for call in calls]
    await exchange([info, *sent], timeout)
    there = _ATTACHED.search(_reply(info[0], bytes))
    # Not sooner: a script that the server did not know was sent again, and only what stands before it is covered.
    left = max(0.001, end - monotonic())
    key = helper_key(first_key(calls[0].body).decode(), f"{WIRE_VERSION}:wait").encode()
    write = conn.command(b"SET", key, b"1", b"PX", b"1")
    wait = conn.command(b"WAIT", b"%d" % replicas, b"%d" % max(1, int(left * 1000 * _SHARE)))
    await exchange([write, wait], left)
    count = min(_reply(wait[0], int), int(there[1])) if there else 0
    return [(request.outcome, count) for request, _ in sent]


def _reply(request: Request, kind: type[Any]) -> Any:
    """The reply to a command. Raises ``Fault``: the scripts may have been applied."""
    reply = request.outcome
    if isinstance(reply, ReplyError):
        fault = classify(str(reply))
        raise Fault(fault.kind, fault.text, maybe_applied=True)
    if type(reply) is kind:
        return reply
    if isinstance(reply, Fault):
        raise reply
    raise Fault(FaultKind.UNANSWERED, f"no answer to the count of replicas: {reply}", maybe_applied=True)


async def ask_on(link: Link, calls: Sequence[Call], replicas: int, timeout: float) -> list[Acknowledged]:
    """See ``Carrier.call_replicated``: on the link that a thread holds."""

    async def exchange(sent: Sequence[tuple[Request, bytes]], left: float) -> None:
        link.exchange(sent, left)

    return await _ask(link.conn, exchange, calls, replicas, timeout)


Locate = Callable[[float], Awaitable[Endpoint]]


class ReplicaPool:
    """The connections of one loop beside the shared one, for requests that block their connection."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[Mux]] = {}
        self._closed = False

    async def call(
        self, place: Hashable, locate: Locate, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier.call_replicated``.

        Args:
            place: Which server, for a connection that is kept.
            locate: Where it is, for one that is to be made.
            calls: The scripts.
            replicas: How many replicas to wait for.
            timeout: Seconds for all of it but the connecting.
        """
        idle = self._idle.setdefault(place, [])
        mux = idle.pop() if idle else await self._open(locate, timeout)
        try:
            answers = await _ask(mux.conn, mux.exchange, calls, replicas, timeout)
        except BaseException:
            mux.close()
            raise
        if self._closed or len(idle) >= _KEPT:
            mux.close()
        elif not mux.dead:
            idle.append(mux)
        return answers

    async def _open(self, locate: Locate, timeout: float) -> Mux:
        patience = max(timeout, 0.25)
        endpoint = await locate(patience)
        mux = Mux(asyncio.get_running_loop(), _drop, self._ended)
        try:
            async with asyncio.timeout(patience * 2):
                await open_mux(endpoint, mux, Handshake("", endpoint, first=False), patience)
        except TimeoutError:
            text = f"{endpoint.shown}: no connection within {patience * 2:.3g} s"
            raise Fault(FaultKind.UNREACHABLE, text) from None
        return mux

    def _ended(self, mux: Mux) -> None:
        """Keep no connection that broke."""
        for idle in self._idle.values():
            if mux in idle:
                idle.remove(mux)

    def close(self) -> None:
        """Close those that are kept; one in use is closed after its use."""
        self._closed = True
        self.leave_others("")

    def leave_others(self, shown: str) -> None:
        """Close those that are kept and lead elsewhere than to this address."""
        for mux in [mux for idle in self._idle.values() for mux in idle if mux.shown != shown]:
            mux.close()

    def abandon(self) -> None:
        """In a forked child: forget them."""
        self._idle = {}


def _drop(_token: str, _wakeup: Wakeup) -> None:
    """Nobody is woken through such a connection."""
