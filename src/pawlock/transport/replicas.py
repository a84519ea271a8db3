"""Scripts, one small write, and ``WAIT``, in one go on one connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

from pawlock.core.protocol.faults import classify, or_raise
from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.runtime import Acknowledged, Call, Fault, FaultKind
from pawlock.topology.cluster import first_key
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.conn import Words
from pawlock.transport.link import Link
from pawlock.transport.mux import Mux, nobody, open_mux
from pawlock.transport.wire import ReplyError

__all__ = ["ReplicaPool", "ask_on"]

_SHARE = 0.75
"""Of the time for an answer, what the replicas may take of it."""

_KEPT = 8
_ATTACHED = re.compile(rb"connected_slaves:(\d+)")

Exchange: TypeAlias = Callable[[Sequence[Call | Words], float], Awaitable[list[Any]]]
"""Sends several together; what each is answered with."""


async def _ask(
    exchange: Exchange, calls: Sequence[Call], replicas: int, timeout: float
) -> list[Acknowledged]:
    """Run scripts of one server, and count the replicas that have what they wrote.

    ``WAIT`` covers what its own connection wrote. A grant that another's script made (a hand-off), and a resend that
    finds its token holding, write nothing; so a write goes before it: it stands behind all of them in the stream of
    replication, wherever they came from. A master that never had a replica numbers no writes, and counts one that comes
    while it waits, whatever that has by then: so only those count that were there before.
    """
    end = monotonic() + timeout
    info, *outcomes = await exchange([(b"INFO", b"replication"), *calls], timeout)
    there = _ATTACHED.search(_checked(info, bytes))
    # Not sooner: a script that the server did not know was sent again, and only what stands before it is covered.
    left = max(0.001, end - monotonic())
    key = helper_key(first_key(calls[0].body).decode(), f"{WIRE_VERSION}:wait").encode()
    wait = b"WAIT", b"%d" % replicas, b"%d" % max(1, int(left * 1000 * _SHARE))
    _, count = await exchange([(b"SET", key, b"1", b"PX", b"1"), wait], left)
    count = min(_checked(count, int), int(there[1])) if there else 0
    return [(outcome, count) for outcome in outcomes]


def _checked(reply: Any, kind: type[Any]) -> Any:
    """The reply to a command. Raises ``Fault``: the scripts may have been applied."""
    if isinstance(reply, ReplyError):
        fault = classify(str(reply))
        raise Fault(fault.kind, fault.text, maybe_applied=True)
    if type(or_raise(reply)) is kind:
        return reply
    raise Fault(FaultKind.UNANSWERED, f"no answer to the count of replicas: {reply}", maybe_applied=True)


async def ask_on(link: Link, calls: Sequence[Call], replicas: int, timeout: float) -> list[Acknowledged]:
    """See ``Carrier.call_replicated``: on the link that a thread holds."""

    async def exchange(what: Sequence[Call | Words], left: float) -> list[Any]:
        return link.exchange(what, left)

    return await _ask(exchange, calls, replicas, timeout)


class ReplicaPool:
    """The connections of one loop beside the shared one, for requests that block their connection."""

    def __init__(self) -> None:
        self._idle: list[Mux] = []
        self._closed = False

    async def call(
        self, endpoint: Endpoint, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier.call_replicated``; ``timeout`` is for all of it but the connecting."""
        mux = next((mux for mux in self._idle if mux.shown == endpoint.shown and not mux.dead), None)
        if mux is None:
            make = partial(Mux, asyncio.get_running_loop(), nobody, nobody)
            mux = await open_mux(endpoint, make, "", max(timeout, 0.25))
        else:
            self._idle.remove(mux)
        try:
            answers = await _ask(mux.exchange, calls, replicas, timeout)
        except BaseException:
            mux.close()
            raise
        if self._closed:
            mux.close()
        else:
            self._idle.append(mux)
            self._close(self._idle[:-_KEPT])
        return answers

    def close(self) -> None:
        """Close those that are kept; one in use is closed after its use."""
        self._closed = True
        self._close(self._idle)

    def leave_others(self, shown: str) -> None:
        """Close those that are kept and lead elsewhere than to this address."""
        self._close([mux for mux in self._idle if mux.shown != shown])

    def _close(self, muxes: Sequence[Mux]) -> None:
        for mux in list(muxes):
            self._idle.remove(mux)
            mux.close()
