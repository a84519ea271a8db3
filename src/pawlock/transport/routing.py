"""Finding the node for each call of a cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind
from pawlock.topology.cluster import (
    SLOTS,
    Address,
    Range,
    SlotMap,
    first_key,
    read_ranges,
    read_redirect,
    slot_of,
)
from pawlock.topology.endpoint import ClusterNodes, Endpoint
from pawlock.transport.route import Route

__all__ = ["Asking", "Router"]

log: logging.Logger = logging.getLogger("pawlock.cluster")

_ASKING = b"*1\r\n$6\r\nASKING\r\n"
_MOST_HOPS = 8
_PATIENCE = 0.5
_LEAST_SHARE = 0.05
"""Seconds for a node that is asked for the map, at least."""

_LEAST_PAUSE = 0.05
"""Seconds between two loads of the map: many calls learn of the same move at once."""

_MAYBE_MOVED = frozenset(
    {FaultKind.UNREACHABLE, FaultKind.UNANSWERED, FaultKind.READ_ONLY, FaultKind.NOT_READY}
)


_Where: TypeAlias = dict[int, tuple[Address | None, Call]]
"""Calls by their numbers, and to which node each goes."""


class Asking(Call):
    """A call to the node that a slot is moving to: let in for this once, and with its text, which is new there."""

    __slots__ = ()

    @classmethod
    def of(cls, call: Call) -> Asking:
        """Let a call in: whatever packs it, ``ASKING`` goes before, and its text where its digest would be."""
        return cls(replace(call.script, before=_ASKING), call.body)


class Router(Route):
    """Sends each call to the node that serves its keys, and follows the slots when they move.

    Args:
        target: Nodes of the cluster.
        now: The clock.
    """

    several = True

    def __init__(self, target: ClusterNodes, now: Callable[[], float]) -> None:
        super().__init__(lambda: target.nodes[0])
        self.slots: SlotMap = SlotMap()
        self._target = target
        self._model = target.nodes[0]
        self._seeds: tuple[Address, ...] = tuple(
            (node.settings["host"], node.settings["port"]) for node in target.nodes
        )
        self._silent_at: dict[Address, float] = {}
        self._now = now
        self._turn = 0

    async def locate(self, address: Address, timeout: float) -> Endpoint:
        """See ``Route``."""
        del timeout
        return self._model.at(*address)

    def node_of(self, call: Call) -> Address | None:
        """The node that serves a call's keys by the present map."""
        return self.slots.owner(slot_of(first_key(call.body)))

    async def any_node(self, timeout: float) -> Address:
        """A master, another one each time. Raises ``Fault`` if no node knows one."""
        await self.refresh(timeout)
        masters = self.slots.masters
        self._turn += 1
        return masters[self._turn % len(masters)]

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> list[str]:
        """One of the keys that a function makes of numbers for each master, in order. Raises ``Fault``."""
        await self.refresh(timeout)
        found: dict[Address, str] = {}
        for number in range(SLOTS):
            key = key_of(number)
            owner = self.slots.owner(slot_of(key.encode()))
            if owner is not None:
                found.setdefault(owner, key)
            if len(found) == len(self.slots.masters):
                break
        return [found[address] for address in sorted(found)]

    async def refresh(self, timeout: float) -> None:
        """Load the map if it is stale. Raises ``Fault`` if there is none to go on with."""
        slots, now = self.slots, self._now()
        if not slots.masters or (slots.stale and now - slots.loaded_at >= _LEAST_PAUSE):
            # From here on others go on with the old map.
            slots.loaded_at = now
            await self._load(min(max(timeout, 0.05), self.nodes.connect_timeout or _PATIENCE))

    async def _load(self, timeout: float) -> None:
        faults: list[Fault] = []
        known = dict.fromkeys((*self.slots.masters, *self._seeds))
        end = self._now() + timeout
        # Who did not answer lately is asked last.
        for address in sorted(known, key=lambda address: self._silent_at.get(address, 0.0)):
            share = timeout
            if self.slots.masters:
                # All of them together: the caller may have the end of a lease to report by then.
                share = max((end - self._now()) / 2, _LEAST_SHARE)
                if faults and self._now() + share > end:
                    break
            try:
                ranges = await self._ask(address, share)
            except Fault as fault:
                faults.append(fault.without_traceback())
                self._silent_at[address] = self._now()
                continue
            if self.slots.load(ranges, self._now()):
                log.info("%s: the masters changed", self._target.shown)
                if self.nodes.on_move is not None:
                    self.nodes.on_move()
            return
        if not self.slots.masters:
            raise self._refusal(faults)
        log.warning("%s: no node returned the slot map; keeping the last one", self._target.shown)

    async def _ask(self, address: Address, timeout: float) -> list[Range]:
        """The map that a node has. Raises ``Fault``."""
        endpoint = self._model.at(*address)
        reply = await self.nodes.ask_node(endpoint, ("CLUSTER", "SLOTS"), timeout)
        try:
            ranges = read_ranges(reply, address[0])
        except ValueError as error:
            raise Fault(FaultKind.NOT_REDIS, f"{endpoint.shown}: {error}", final=True) from None
        if not ranges:
            raise Fault(FaultKind.NOT_READY, f"{endpoint.shown} has no slots yet")
        return ranges

    def _refusal(self, faults: list[Fault]) -> Fault:
        texts = "; ".join(fault.text for fault in faults)
        if any("cluster support disabled" in fault.text for fault in faults):
            text = f"{texts}: the server is not part of a cluster: use redis://"
            return Fault(FaultKind.UNSUPPORTED, text, final=True)
        final = all(fault.final for fault in faults)
        # If all of them refuse this user, no other try helps, and the error names that cause.
        kind = faults[0].kind if len({fault.kind for fault in faults}) == 1 else FaultKind.UNREACHABLE
        return Fault(kind, f"{self._target.shown}: no node returned the slot map: {texts}", final=final)

    # Calls ------------------------------------------------------------------------------------------------------

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Carrier``: in fewer steps where it is known who serves the keys."""
        address = None if self.slots.stale else self.node_of(call)
        if address is None:
            return await super().call(call, timeout)
        try:
            return await self.nodes.send_one(address, call, timeout)
        except Fault as fault:
            if fault.kind is not FaultKind.REDIRECTED:
                self.note_failure(address, fault)
                raise
        return await super().call(call, timeout)

    async def send_all(self, calls: Sequence[Call], replicas: int, timeout: float) -> list[Acknowledged]:
        """See ``Carrier``: those of a node together, and each to where its keys are."""
        end = self._now() + timeout
        try:
            if self.slots.stale:
                await self.refresh(timeout)
        except Fault as fault:
            return [(fault.without_traceback(), 0)] * len(calls)
        nowhere = Fault(FaultKind.NOT_READY, "no node serves the slot")
        found: list[Acknowledged] = [(nowhere, 0)] * len(calls)
        where = {index: (self.node_of(call), call) for index, call in enumerate(calls)}
        for _ in range(_MOST_HOPS):
            where = await self._send(where, found, replicas, max(0.001, end - self._now()))
            if not where:
                break
        return found

    async def _send(self, where: _Where, found: list[Acknowledged], replicas: int, timeout: float) -> _Where:
        """Send calls, by their numbers, each to a node, and note the outcomes; those that are elsewhere by now."""
        groups: dict[Address, list[int]] = {}
        for index, (address, _) in where.items():
            if address is None:
                self.slots.stale = True
            else:
                groups.setdefault(address, []).append(index)
        packed = {address: [where[index][1] for index in indices] for address, indices in groups.items()}
        moved: _Where = {}
        for address, answers in (await self.nodes.send_groups(packed, replicas, timeout)).items():
            for index, answer in zip(groups[address], answers, strict=True):
                found[index], fault = answer, answer[0]
                if not isinstance(fault, Fault):
                    continue
                if fault.kind is FaultKind.REDIRECTED:
                    moved[index] = self._follow(where[index][1], address, fault)
                    found[index] = Fault(FaultKind.NOT_READY, "the slot is moving"), 0
                else:
                    self.note_failure(address, fault)
        return moved

    def _follow(self, call: Call, asked: Address, fault: Fault) -> tuple[Address | None, Call]:
        try:
            ask, slot, address = read_redirect(fault.text, asked[0])
        except ValueError:
            return None, call
        if ask:
            return address, Asking.of(call)
        self.slots.assign(slot, address)
        return address, call

    def note_failure(self, address: Address, fault: Fault) -> None:
        """Take a failure of a node into account: somebody else may serve its slots by now."""
        if fault.kind in _MAYBE_MOVED:
            self.slots.stale = True
        if fault.kind in (FaultKind.UNREACHABLE, FaultKind.UNANSWERED):
            self._silent_at[address] = self._now()
