"""Asking Sentinels where the master is, and hearing from them when it moves."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeAlias

from pawlock.core.protocol.runtime import Fault, FaultKind, run
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint, Sentinels
from pawlock.topology.sentinel import View, read_view
from pawlock.transport.link import Link, ask_sync
from pawlock.transport.route import Route

__all__ = ["SentinelRoute"]

log: logging.Logger = logging.getLogger("pawlock.sentinel")

_Ask: TypeAlias = Callable[[Endpoint, tuple[str, ...], float], Awaitable[Any]]
"""Connects to a node, asks one thing and disconnects; raises ``Fault``."""

_CHANNEL = "+switch-master"
_PATIENCE = 0.5
_TICK = 1.0
_PAUSE = 0.5


class SentinelRoute(Route):
    """The master that the Sentinels name: each connection goes to the present one, and all move when it does.

    A thread listens to one Sentinel at a time, so that nobody stays with the former master: one that was cut off goes
    on taking writes for a while, and knows nothing of its successor.
    """

    def __init__(self, target: Sentinels) -> None:
        super().__init__(lambda: target.master)
        self._target = target
        self._order = target.sentinels
        self._known = False
        self.after_fork()

    def after_fork(self) -> None:
        """See ``Route``."""
        self._listens = False
        self._master = ""

    async def locate(self, address: Address, timeout: float) -> Endpoint:
        """See ``Route``."""
        del address
        endpoint = await self._find(self.nodes.ask_node, timeout)
        self._follow(endpoint)
        # Two at once would do no harm.
        self._listens = self._listens or self.listen()
        return endpoint

    async def _find(self, ask: _Ask, timeout: float, *, thorough: bool = False) -> Endpoint:
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
        words = ("SENTINEL", "MASTER", self._target.service)
        for sentinel in self._order:
            try:
                views.append(read_view(await ask(sentinel, words, min(timeout, _PATIENCE))))
            except (Fault, ValueError, TypeError) as error:
                strange = Fault(FaultKind.NOT_REDIS, f"{sentinel.shown}: {error}", final=True)
                faults.append(error if isinstance(error, Fault) else strange)
                # It is asked last the next time.
                self._order = (*[one for one in self._order if one is not sentinel], sentinel)
            # A failover is agreed on by a majority, so any majority has heard of it.
            if not thorough and len(views) > len(self._order) // 2:
                break
        if not views:
            raise self._refusal(faults)
        self._known = True
        # The newest configuration: a Sentinel that is cut off from the others still has an older one.
        view = max(views, key=lambda view: view.epoch)
        return self._target.master.at(view.host, view.port)

    def _refusal(self, faults: list[Fault]) -> Fault:
        texts = "; ".join(fault.text for fault in faults)
        text = f"{self._target.shown}: no Sentinel answered: {texts}"
        final = not self._known and all(fault.final for fault in faults)
        kind = faults[0].kind if final else FaultKind.UNREACHABLE
        if "No such master" in texts:
            text = (
                f"{self._target.shown}: the Sentinels have no master named {self._target.service!r} ({texts})"
            )
            kind, final = FaultKind.UNREACHABLE, not self._known
        elif "unknown command" in texts.lower():
            text = f"{self._target.shown}: {texts}: not a Sentinel: for a plain server use redis://"
            kind, final = FaultKind.UNSUPPORTED, True
        elif all(fault.kind is FaultKind.DENIED for fault in faults):
            text = f"{texts}: set sentinel_username and sentinel_password in the URL"
            kind, final = FaultKind.DENIED, True
        return Fault(kind, text, final=final)

    def listen(self) -> bool:
        """Hear of failovers from now on; False if the system has no thread left, and the next look-up is to try again."""
        # A thread also for a loop: it only listens, and the loop may be busy or gone.
        thread = threading.Thread(target=self._listen, name="pawlock-sentinel", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
        return thread.is_alive()

    def _listen(self) -> None:
        """Until nobody needs it any more, which is asked once a second."""
        sentinels, service = self._target.sentinels, self._target.service.encode()
        turn = 0
        while not self._over():
            sentinel = sentinels[turn % len(sentinels)]
            turn += 1
            try:
                with contextlib.closing(Link(sentinel, _CHANNEL, _TICK)) as link:
                    if turn > 1:
                        # There could have been a failover in the time without one.
                        self._look()
                    while not self._over() and not link.dead:
                        push = link.next_push(monotonic() + _TICK)
                        if push is not None and push[2].split(b" ")[0] == service:
                            self._look()
            except Exception as error:  # noqa: BLE001 - whatever broke, another Sentinel may serve
                log.debug("%s: %s", sentinel.shown, error)
                time.sleep(_PAUSE)

    def _over(self) -> bool:
        # Asked by the thread, which must not keep the runtime: a client that is dropped ends at once.
        try:
            return self.nodes.over()
        except ReferenceError:
            return True

    def _look(self) -> None:
        with contextlib.suppress(Fault, ReferenceError):
            endpoint = run(self._find(ask_sync, _PATIENCE, thorough=True))
            self.nodes.run_in_owner(lambda: self._follow(endpoint))

    def _follow(self, endpoint: Endpoint) -> None:
        """Close every connection to another master than this one, and have each lease confirmed."""
        before, self._master = self._master, endpoint.shown
        left = self.nodes.leave_others(endpoint.shown)
        if (left or before not in ("", endpoint.shown)) and self.nodes.on_move is not None:
            self.nodes.on_move()
