"""Connections between processes and servers: what is sent arrives late, twice or never, but in order on each.

A request that its sender has given up still arrives: closing a socket does not call back what is under way. So a late
copy on an old connection may overtake nothing, but be overtaken by all that was sent on a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappush
from math import inf
from typing import TYPE_CHECKING, Any

from pawlock.core.faults import classify
from pawlock.core.runtime import FIRST_RID, Call, Fault, FaultKind, Wakeup
from tests.simulator.steps import words_of_wake

if TYPE_CHECKING:
    from random import Random

    from tests.simulator.node import Node
    from tests.simulator.world import Process, World

__all__ = ["Link", "Network", "Request", "token_of"]


class Request:
    """One call on its way, and who is told of its end.

    Attributes:
        answered: Called with the outcome, and ``index`` before it; None: it was told.
        wait: Seconds for which ``WAIT`` may wait for a replica; 0: it is a script.
    """

    __slots__ = (
        "answered", "by_text", "call", "deadline", "doubled", "index", "operation", "rid", "sent_at", "wait",
    )  # fmt: skip

    def __init__(
        self,
        call: Call,
        answered: Callable[[int, Any], object],
        index: int,
        operation: str,
        deadline: float,
        wait: float,
        by_text: bool,  # noqa: FBT001 - made a thousand times a second
    ) -> None:
        self.call: Call = call
        self.answered: Callable[[int, Any], object] | None = answered
        self.index: int = index
        self.operation: str = operation
        self.deadline: float = deadline
        self.wait: float = wait
        self.by_text: bool = by_text
        self.doubled: bool = False
        self.rid: int = 0
        self.sent_at: float = 0.0

    def end(self, outcome: Any) -> None:
        """Tell the outcome, once."""
        answered, self.answered = self.answered, None
        if answered is not None:
            answered(self.index, outcome)


class Network:
    """How messages fare. The faults of a plan change these numbers while they last.

    Attributes:
        base: The usual delay of one way, in seconds.
        tail: How heavy the tail of delays is: the chance that one is ten times as long, again and again.
        faults: Faults that are on: name to (process or "" for all, chance).
        count: Called with each fault that struck a request: its name and the operation that it struck.
        refused: Called with each reply "not yours" that reached its client: process and call.
        swallow: How many replies of a process are to be lost, the next ones.
        muddled: Tokens that were given back by requests that came twice, and of which a reply was lost: the sender
            sees one request and one reply, and cannot tell the first from the second.
        orderly: Whether a connection brings each request once and in order, so that what comes late comes from one that
            broke. Several masters rely on that: an undo goes behind the vote on its connection, without a tombstone.
    """

    def __init__(self, world: World, base: float, tail: float) -> None:
        self.world = world
        self.random: Random = world.random
        self._draw: Callable[[], float] = world.random.random
        self.base: float = base
        self.tail: float = tail
        self.faults: dict[str, dict[str, float]] = {}
        self.count: Callable[[str, str], object] = _deaf
        self.refused: Callable[[Process, Call], object] = _deaf
        self.muddled: set[str] = set()
        self.swallow: dict[str, int] = {}
        self.orderly: bool = False

    def delay(self) -> float:
        """How long one message takes."""
        random = self._draw
        delay = self.base * (0.5 + random())
        if random() >= self.tail:
            return delay
        while True:
            delay *= 10 * random() + 1
            if delay > 20:
                return 20 * random()
            if random() >= self.tail:
                return delay

    def delay_of(self, node: Node) -> float:
        """How long one message to or from a server takes."""
        return self.delay() + (node.far * (0.5 + self._draw()) if node.far else 0.0)

    def struck(self, fault: str, process: str, operation: str) -> bool:
        """Whether a fault that is on strikes a message of this process."""
        on = self.faults.get(fault)
        if not on:
            return False
        chance = on.get(process)
        if chance is None:
            chance = on.get("")
        if chance is None or self.random.random() >= chance:
            return False
        self.count(fault, operation)
        return True


_GIVES_BACK = frozenset({"leave"})


def token_of(call: Call) -> str:
    """The token that a script is about; ``""`` if it has none."""
    script = call.script
    words = call.body.split(b"\r\n")[1 + 2 * (script.numkeys + words_of_wake(script)) :]
    return words[0].decode() if words else ""


def _deaf(*_: object) -> None:
    """Nobody wants to know."""


class Link:
    """One connection, as both ends see it.

    Args:
        network: What it runs through.
        process: The client's process.
        node: The server.
        channel: The channel that the client hears on it.
        on_wakeup: Called with each hand-off message: token and message.
        on_end: Told once when the client's end knows that it is gone.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        node: Node,
        channel: str,
        on_wakeup: Callable[[str, Wakeup], object],
        on_end: Callable[[Link], object],
    ) -> None:
        self.network = network
        self.process = process
        self.node = node
        self.channel: str = channel
        self.dead: bool = False
        self.run: int = -1
        self.heard_at: float = -1.0
        self.silent: int = 0
        self.look_at: float = inf
        self.written: int = 0
        self.pending: dict[int, Request] = {}
        self._on_wakeup = on_wakeup
        self._on_end = on_end
        self._rid = FIRST_RID
        self._there_at = 0.0
        self._back_at = 0.0

    # From the client --------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Send a request; its end is told in any case, if only by a deadline of the caller's."""
        if self.dead:
            request.end(Fault(FaultKind.UNREACHABLE, "the connection is gone"))
            return
        network = self.network
        self._rid = rid = request.rid = self._rid + 1
        request.sent_at = network.world.now
        self.pending[rid] = request
        if network.faults:
            self._carry(request, rid)
        else:
            self._depart(request, rid)

    def _depart(self, request: Request, rid: int) -> None:
        """Have a request arrive once, after the usual delay."""
        world = self.network.world
        when = world.now + self.network.delay_of(self.node)
        if when < self._there_at:
            when = self._there_at
        else:
            self._there_at = when
        world._order = order = world._order + 1
        heappush(world._heap, (when, order, self._arrive, (request, rid, False, request.by_text)))

    def _carry(self, request: Request, rid: int) -> None:
        """Send a request while faults are on."""
        network, name = self.network, self.process.name
        world = network.world
        if network.struck("loss", name, request.operation) or network.struck(
            "cut_out", name, request.operation
        ):
            return
        if network.struck("half_open", name, request.operation):
            self.run = -2
            self.node.links.pop(self.channel, None)
        if network.struck("late_copy", name, request.operation):
            if network.orderly:
                self._strand(request, rid)
                return
            # It is applied, its reply is lost, and it is applied again much later.
            copy = (request, rid, True, request.by_text)
            world.at(world.now + network.random.random() * 15, self._arrive, copy)
            world.at(self._after(network.delay()), self._arrive, copy)
            return
        if not network.orderly and network.struck("double", name, request.operation):
            request.doubled = True
            self._depart(request, rid)
        self._depart(request, rid)

    def _strand(self, request: Request, rid: int) -> None:
        """The connection breaks with a request on its way, which arrives much later."""
        run, world = self.run, self.network.world

        def arrive(_: object) -> None:
            node = self.node
            if node.stalled_until > world.now:
                world.at(node.stalled_until, arrive)
            elif node.up and node.run == run:
                node.execute(self.process.name, request.call, rid, by_text=request.by_text)

        world.at(world.now + self.network.random.random() * 15, arrive)
        self._break()

    def _after(self, delay: float) -> float:
        """When something sent now arrives: never before what was sent earlier."""
        when = self.network.world.now + delay
        if when < self._there_at:
            return self._there_at
        self._there_at = when
        return when

    def handshake(self, answered: Callable[[Fault | None], object]) -> None:
        """Open it: the server notes the channel, and the client learns of it or of a fault."""
        network = self.network
        if network.struck("cut_out", self.process.name, "connect") or network.struck(
            "loss", self.process.name, "connect"
        ):
            return
        network.world.at(self._after(2 * network.delay_of(self.node)), self._shook_hands, answered)

    def _shook_hands(self, answered: Callable[[Fault | None], object]) -> None:
        node, network = self.node, self.network
        if node.stalled_until > network.world.now:
            network.world.at(node.stalled_until, self._shook_hands, answered)
            return
        fault = None
        if not node.up:
            fault = Fault(FaultKind.UNREACHABLE, "connection refused")
        elif node.loading:
            fault = Fault(FaultKind.NOT_READY, "LOADING")
        elif node.store.replica:
            fault = Fault(FaultKind.READ_ONLY, f"{node.name} is a replica")
        else:
            self.run = node.run
            node.links[self.channel] = self
        if network.struck("cut_in", self.process.name, "connect"):
            return
        self.process.deliver(self._before(network.delay_of(node)), answered, fault)

    # At the server ----------------------------------------------------------------------------------------------

    def _arrive(self, item: tuple[Request, int, bool, bool]) -> None:
        request, rid, mute, by_text = item
        node, world = self.node, self.network.world
        if node.stalled_until > world.now:
            world.at(node.stalled_until, self._arrive, item)
            return
        if not node.up or self.run != node.run:
            if self.run != -2:
                self.process.deliver(
                    self._before(self.network.delay()), self._reset, "the server closed the connection"
                )
            return
        breaks = node.breaks and world.random.random() < node.breaks
        if breaks and world.random.random() < 0.5:
            self._break()
            return
        pair = node.pair
        if request.wait and pair is not None:
            # A write goes before it: behind all that anybody wrote until now.
            pair.wrote(node)
            self.written = pair.offset
            pair.wait(node, self.written, request.wait, partial(self._waited, request, rid))
            return
        reply = self._run(request, rid, by_text=by_text)
        if pair is not None and node.changed:
            self.written = pair.offset
        if breaks:
            self._break()
        elif not mute:
            self._reply(request, rid, reply)

    def _run(self, request: Request, rid: int, *, by_text: bool) -> Any:
        return self.node.execute(self.process.name, request.call, rid, by_text=by_text)

    def _break(self) -> None:
        """The connection breaks just now; the client hears no more."""
        self.run = -2
        self.node.links.pop(self.channel, None)
        self.process.deliver(self._before(self.network.delay_of(self.node)), self._reset, "reset by peer")

    def _waited(self, request: Request, rid: int, count: int) -> None:
        if self.node.up and self.run == self.node.run:
            self._reply(request, rid, [b"W", rid, count])

    def _reply(self, request: Request, rid: int, reply: Any) -> None:
        network, name = self.network, self.process.name
        if network.swallow.get(name):
            network.swallow[name] -= 1
            network.count("one_reply", request.operation)
            network.world.note(name, "lost the reply to", request.call.script.name, token_of(request.call))
            return
        if network.faults and (
            network.struck("reply_loss", name, request.operation)
            or network.struck("cut_in", name, request.operation)
        ):
            if request.doubled and request.call.script.name in _GIVES_BACK:
                network.muddled.add(token_of(request.call))
            return
        world = network.world
        when = world.now + network.delay_of(self.node)
        if when < self._back_at:
            when = self._back_at
        else:
            self._back_at = when
        world._order = order = world._order + 1
        heappush(world._heap, (when, order, self._answer, (rid, reply)))

    def push(self, text: bytes) -> None:
        """Send a hand-off message to the client."""
        network = self.network
        if network.faults and (
            network.struck("message_loss", self.process.name, "acquire")
            or network.struck("cut_in", self.process.name, "acquire")
        ):
            return
        self.process.deliver(self._before(network.delay()), self._pushed, text)

    def _before(self, delay: float) -> float:
        when = self.network.world.now + delay
        if when < self._back_at:
            return self._back_at
        self._back_at = when
        return when

    # Back at the client -----------------------------------------------------------------------------------------

    def _answer(self, item: tuple[int, Any]) -> None:
        process, network = self.process, self.network
        if self.dead or not process.alive:
            return
        now = network.world.now
        if process.paused_until > now:
            network.world.at(process.paused_until, self._answer, item)
            return
        rid, reply = item
        self.heard_at = now
        self.silent = 0
        pending = self.pending
        request = pending.pop(rid, None)
        if pending:
            # Replies come in order: those of earlier requests that are still missing are lost.
            for earlier in [other for other in pending if other < rid]:
                pending.pop(earlier).end(
                    Fault(FaultKind.UNANSWERED, "the reply was lost", maybe_applied=True)
                )
        if request is None:
            return
        if type(reply) is list:
            words: list[Any] = reply  # pyright: ignore[reportUnknownVariableType] - a reply, so of anything
            if words[0] == b"U":
                network.refused(process, request.call)
            request.end(words if request.wait else request.call.answer(words))
            return
        self._turned_down(request, reply)

    def _turned_down(self, request: Request, reply: str) -> None:
        """Take an error reply."""
        if reply.startswith("NOSCRIPT") and not request.by_text:
            request.by_text = True
            self._rid = request.rid = self._rid + 1
            self.pending[request.rid] = request
            if self.network.faults:
                self._carry(request, request.rid)
            else:
                self._depart(request, request.rid)
            return
        fault = classify(reply)
        request.end(fault)
        if fault.kind is FaultKind.READ_ONLY:
            self.close(Fault(FaultKind.UNANSWERED, reply, maybe_applied=True))

    def _pushed(self, text: bytes) -> None:
        if self.dead:
            return
        token, fence, expires_ms, _ = text.decode().split(" ")
        self._on_wakeup(token, Wakeup(int(fence), int(expires_ms)))

    def _reset(self, text: str) -> None:
        self.close(Fault(FaultKind.UNANSWERED, f"the connection broke: {text}", maybe_applied=True))

    def close(self, fault: Fault) -> None:
        """Close the client's end: what waits for a reply gets ``fault``. What was sent is still under way."""
        if self.dead:
            return
        self.dead = True
        if self.node.links.get(self.channel) is self:
            # The server learns of it a moment later; until then it may publish into the void.
            self.network.world.at(self._after(self.network.delay()), self._forgotten, None)
        pending, self.pending = self.pending, {}
        for request in pending.values():
            request.end(fault)
        self._on_end(self)

    def _forgotten(self, _: object) -> None:
        if self.node.links.get(self.channel) is self:
            del self.node.links[self.channel]
