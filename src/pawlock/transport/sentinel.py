"""Asking Sentinels where the master is, and hearing from them when it moves."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Self, TypeAlias

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.runtime import Fault, FaultKind, run
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint, Sentinels
from pawlock.topology.sentinel import View, choose, enough, read_switch, read_view
from pawlock.transport.link import Stream, ask_sync
from pawlock.transport.route import Route
from pawlock.transport.wire import ReplyError

__all__ = ["Ask", "MasterFinder", "MasterWatch", "SentinelRoute"]

log: logging.Logger = logging.getLogger("pawlock.sentinel")

Ask: TypeAlias = Callable[[Endpoint, tuple[str, ...], float], Awaitable[Any]]
"""Connects to a node, asks one thing and disconnects; raises ``Fault``."""

_PATIENCE = 0.5
_TICK = 1.0
_PAUSE = 0.5


class MasterFinder:
    """Finds the master of a service. May be used by several threads at once.

    Args:
        target: The Sentinels and the service.
    """

    def __init__(self, target: Sentinels) -> None:
        self.target = target
        self._order = target.sentinels
        self._known = False

    async def find(self, ask: Ask, timeout: float, *, thorough: bool = False) -> Endpoint:
        """Where the master is, by the newest view that a majority of the Sentinels has.

        Args:
            ask: How this API asks.
            timeout: Seconds that each Sentinel may take, at most half a second.
            thorough: Whether to ask all of them: right after a failover most have not heard of it.

        Raises:
            Fault: No Sentinel answered, or none of them knows the service.
        """
        views: list[View] = []
        faults: list[Fault] = []
        answered: list[Endpoint] = []
        silent: list[Endpoint] = []
        for sentinel in self._order:
            try:
                words = ("SENTINEL", "MASTER", self.target.service)
                views.append(read_view(await ask(sentinel, words, min(timeout, _PATIENCE))))
            except Fault as fault:
                faults.append(fault)
                silent.append(sentinel)
                continue
            except (ValueError, TypeError) as error:
                faults.append(Fault(FaultKind.NOT_REDIS, f"{sentinel.shown}: {error}", final=True))
                silent.append(sentinel)
                continue
            answered.append(sentinel)
            if not thorough and enough(len(views), len(self._order)):
                break
        if not views:
            raise self._refusal(faults)
        if silent:
            # Who does not answer is asked last the next time.
            asked = {sentinel.shown for sentinel in (*answered, *silent)}
            rest = [sentinel for sentinel in self._order if sentinel.shown not in asked]
            self._order = (*answered, *rest, *silent)
        self._known = True
        view = choose(views)
        return self.target.master.at(view.host, view.port)

    def _refusal(self, faults: list[Fault]) -> Fault:
        texts = "; ".join(fault.text for fault in faults)
        for fault in faults:
            if "No such master" in fault.text:
                text = f"{self.target.shown}: the Sentinels have no master named {self.target.service!r} ({texts})"
                return Fault(FaultKind.UNREACHABLE, text, final=not self._known)
        for fault in faults:
            if "unknown command" in fault.text.lower():
                text = f"{self.target.shown}: {texts}: not a Sentinel: for a plain server use redis://"
                return Fault(FaultKind.UNSUPPORTED, text, final=True)
        if faults and all(fault.kind is FaultKind.DENIED for fault in faults):
            text = f"{texts}: set sentinel_username and sentinel_password in the URL"
            return Fault(FaultKind.DENIED, text, final=True)
        final = bool(faults) and not self._known and all(fault.final for fault in faults)
        kind = faults[0].kind if final else FaultKind.UNREACHABLE
        return Fault(kind, f"{self.target.shown}: no Sentinel answered: {texts}", final=final)


class MasterWatch(threading.Thread):
    """Listens to one Sentinel at a time and reports when the master moved, so that nobody stays with the old one.

    A master that was cut off goes on taking writes for a while, and knows nothing of its successor.

    Args:
        target: The Sentinels and the service.
        on_switch: Called in this thread after each failover, and after a time in which one could have been missed.
        ended: Whether nobody needs it any more; asked once a second.
    """

    def __init__(self, target: Sentinels, on_switch: Callable[[], object], ended: Callable[[], bool]) -> None:
        super().__init__(name="pawlock-sentinel", daemon=True)
        self._target = target
        self._on_switch = on_switch
        self._ended = ended
        self._stop_asked = False

    def begin(self) -> Self | None:
        """Listen from now on; None if the system has no thread left for it, and the next look-up is to try again."""
        try:
            self.start()
        except RuntimeError:
            return None
        return self

    def stop(self) -> None:
        """End soon; from any thread."""
        self._stop_asked = True

    def run(self) -> None:
        """Listen until stopped."""
        turn = 0
        first = True
        while not self._over():
            sentinel = self._target.sentinels[turn % len(self._target.sentinels)]
            turn += 1
            try:
                with contextlib.closing(Stream(sentinel, _TICK)) as stream:
                    reply = stream.command(b"SUBSCRIBE", b"+switch-master", end=monotonic() + _TICK)
                    if isinstance(reply, ReplyError):
                        raise classify(str(reply))
                    if not first:
                        self._notify()
                    first = False
                    self._listen(stream)
            except (Fault, OSError) as error:
                # Another Sentinel may serve.
                log.debug("%s: %s", sentinel.shown, error)
                time.sleep(_PAUSE)

    def _listen(self, stream: Stream) -> None:
        while not self._over():
            with contextlib.suppress(TimeoutError, BlockingIOError):
                for push in stream.pushes(monotonic() + _TICK):
                    self._heard(push)

    def _heard(self, push: Any) -> None:
        if push[0] == b"message" and read_switch(push[2], self._target.service):
            self._notify()

    def _notify(self) -> None:
        if not self._over():
            self._on_switch()

    def _over(self) -> bool:
        return self._stop_asked or self._ended()


class SentinelRoute(Route):
    """The master that the Sentinels name: each connection goes to the present one, and all move when it does."""

    def __init__(self, target: Sentinels) -> None:
        super().__init__(lambda: target.master)
        self._finder = MasterFinder(target)
        self._guard = threading.RLock()
        self._watch: MasterWatch | None = None
        self._master = ""

    async def locate(self, address: Address, timeout: float) -> Endpoint:
        """See ``Route``."""
        del address
        endpoint = await self._finder.find(self.nodes.ask_node, timeout)
        self._follow(endpoint)
        with self._guard:
            if self._watch is None and not self.nodes.over():
                # A thread also for a loop: it only listens, and the loop may be busy or gone.
                self._watch = MasterWatch(self._finder.target, self._look, self._over).begin()
        return endpoint

    def _over(self) -> bool:
        # Asked by the watch, which must not keep the runtime: a client that is dropped ends at once.
        try:
            return self.nodes.over()
        except ReferenceError:
            return True

    def _look(self) -> None:
        with contextlib.suppress(Fault, ReferenceError):
            endpoint = run(self._finder.find(ask_sync, _PATIENCE, thorough=True))
            self.nodes.run_in_owner(lambda: self._follow(endpoint))

    def _follow(self, endpoint: Endpoint) -> None:
        """Close every connection to another master than this one, and have each lease confirmed."""
        with self._guard:
            before, self._master = self._master, endpoint.shown
        left = self.nodes.leave_others(endpoint.shown)
        if (left or before not in ("", endpoint.shown)) and self.nodes.on_move is not None:
            self.nodes.on_move()

    def close(self) -> None:
        """See ``Route``."""
        if self._watch is not None:
            self._watch.stop()

    def after_fork(self) -> None:
        """See ``Route``."""
        self._guard = threading.RLock()
        self._watch = None
        self._master = ""
