"""Asking Sentinels where the master is, and where it is now."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from math import inf
from typing import Any, TypeAlias

from pawlock._system import sleep
from pawlock.core.runtime import Fault, FaultKind, run
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint, Sentinels
from pawlock.topology.sentinel import View, choose, read_view
from pawlock.transport.link import Link, refused
from pawlock.transport.route import Route

__all__ = ["SentinelRoute"]

log: logging.Logger = logging.getLogger("pawlock.sentinel")

_Ask: TypeAlias = Callable[[Endpoint, tuple[str, ...], float], Awaitable[Any]]
"""Connects to a node, asks one thing and disconnects; raises ``Fault``."""

_HASTE = 0.15
_PATIENCE = 0.5
_TICK = 1.0


class SentinelRoute(Route):
    """The master that the Sentinels name: each connection goes to the present one, and all move when it does.

    A thread asks once a second, so that nobody stays with the former master: one that was cut off goes on taking writes
    for a while, and knows nothing of its successor. What a Sentinel announces is not listened for: one that hangs, or is
    cut off as well, announces nothing.
    """

    def __init__(self, target: Sentinels) -> None:
        super().__init__(lambda: target.master)
        self._target = target
        self._order = target.sentinels
        self._known = False
        self._epoch = 0
        self.after_fork()

    def after_fork(self) -> None:
        """See ``Route``."""
        self._watched = False
        self._master = ""

    async def locate(self, address: Address, timeout: float) -> Endpoint:
        """See ``Route``."""
        del address
        endpoint = await self._find(self.nodes.ask_node, timeout)
        self._follow(endpoint)
        # Two at once would do no harm.
        self._watched = self._watched or self.watch()
        return endpoint

    async def _find(self, ask: _Ask, timeout: float) -> Endpoint:
        """Where the master is, by what most of the Sentinels say.

        Args:
            ask: How this API asks.
            timeout: Seconds that each Sentinel may take; fewer at first, so that one that hangs costs next to nothing.

        Raises:
            Fault: No Sentinel answered, or none of them knows the service, or only what was true before is left.
        """
        views: dict[str, View] = {}
        faults: dict[str, Fault] = {}
        half = len(self._order) // 2
        words = ("SENTINEL", "MASTER", self._target.service)
        # With a time of the user's, each is asked once: where all are far away, haste would only break connections.
        passes = (far,) if (far := self.nodes.connect_timeout) else (_HASTE, _PATIENCE)
        for patience, sentinel in product(passes, self._order):
            # Again only who did not answer, and only while too few did.
            if sentinel.shown in views or (patience == _PATIENCE and len(views) > half):
                continue
            try:
                views[sentinel.shown] = read_view(await ask(sentinel, words, min(timeout, patience)))
            except (Fault, ValueError, TypeError) as error:
                strange = Fault(FaultKind.NOT_REDIS, f"{sentinel.shown}: {error}", final=True)
                faults[sentinel.shown] = error.without_traceback() if isinstance(error, Fault) else strange
                # It is asked last the next time.
                self._order = (*[one for one in self._order if one is not sentinel], sentinel)
            if views and choose(views.values())[1] > half:
                break
        if not views:
            raise self._refusal([*faults.values()])
        self._known = True
        view, votes = choose(views.values())
        if votes <= half and view.epoch < self._epoch:
            text = f"{self._target.shown}: most Sentinels are silent, and the others name a former master"
            raise Fault(FaultKind.UNREACHABLE, text)
        self._epoch = view.epoch
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
        elif any(fault.kind is FaultKind.UNSUPPORTED for fault in faults):
            text = f"{self._target.shown}: {texts}: not a Sentinel: for a plain server use redis://"
            kind, final = FaultKind.UNSUPPORTED, True
        elif all(fault.kind is FaultKind.DENIED for fault in faults):
            text = f"{texts}: set sentinel_username and sentinel_password in the URL"
            kind, final = FaultKind.DENIED, True
        return Fault(kind, text, final=final)

    def watch(self) -> bool:
        """Learn of failovers from now on; False if the system has no thread left, and the next look-up is to try again."""
        # A thread also for a loop: it only asks, and the loop may be busy or gone.
        thread = threading.Thread(target=self._watch, name="pawlock-sentinel", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
        return thread.is_alive()

    def _watch(self) -> None:
        """Until nobody needs it any more: each second, on connections that are kept."""
        links: dict[str, Link] = {}

        async def ask(sentinel: Endpoint, words: tuple[str, ...], timeout: float) -> Any:
            link = links.get(sentinel.shown)
            if link is None or link.dead:
                link = links[sentinel.shown] = Link(sentinel, None, timeout)
            return refused(link.command(*words, timeout=timeout), sentinel)

        while not self._over():
            try:
                endpoint = run(self._find(ask, inf))
                self.nodes.run_in_owner(partial(self._follow, endpoint))
            except Exception as error:  # noqa: BLE001 - whatever broke, the next look may go well
                log.debug("%s: %s", self._target.shown, error)
            sleep(_TICK)
        for link in links.values():
            link.close()

    def _over(self) -> bool:
        # Asked by the thread, which must not keep the runtime: a client that is dropped ends at once.
        try:
            return self.nodes.over()
        except ReferenceError:
            return True

    def _follow(self, endpoint: Endpoint) -> None:
        """Close every connection to another master than this one, and have each lease confirmed."""
        before, self._master = self._master, endpoint.shown
        left = self.nodes.leave_others(endpoint.shown)
        if (left or before not in ("", endpoint.shown)) and self.nodes.on_move is not None:
            self.nodes.on_move()
