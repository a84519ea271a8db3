"""Wrong ways through a cluster, and wrong nodes of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from pawlock.core import faults
from pawlock.core.runtime import Call, Fault
from pawlock.topology.cluster import Address, slot_of
from pawlock.transport.routing import Asking, Router
from tests.simulator.cluster import Cluster
from tests.simulator.network import token_of

__all__ = ["CLIENTS", "FAULTS", "SCRIPTS", "WHERE", "counting_let_in", "does_not_ask_to_be_let_in"]


async def _loads_once(self: Router, timeout: float) -> None:
    if not self.slots.masters:
        await _refresh(self, timeout)


_refresh = Router.refresh


def _as_new(self: Router, call: Call, asked: Address, fault: Fault) -> tuple[Address | None, Call]:
    address, sent = _follow(self, call, asked, fault)
    token = token_of(call).encode()
    if call.script.name == "acquire" and b"@" in token:
        other = b"9" + token
        word = b"$%d\r\n%b\r\n"
        body = sent.body.replace(word % (len(token), token), word % (len(other), other))
        sent = type(sent)(sent.script, body)
    return address, sent


_follow = Router._follow


async def _asks_without_an_end(self: Router, timeout: float) -> None:
    for address in dict.fromkeys((*self.slots.masters, *self._seeds)):
        try:
            ranges = await self._ask(address, timeout)
        except Fault:
            continue
        if self.slots.load(ranges, self._now()) and self.nodes.on_move is not None:
            self.nodes.on_move()
        return


def _serves_on(self: Cluster, node: Any, call: Call) -> str:
    refusal = _refusal(self, node, call)
    return "" if refusal.startswith("MOVED") else refusal


_refusal = Cluster.refusal


def _lets_half(self: Cluster, node: Any, keys: Any, slot: int, target: Any) -> str:
    refusal = _half(self, node, keys, slot, target)
    return "" if refusal.startswith("TRYAGAIN") else refusal


_half = Cluster._half


def _without(*prefixes: str) -> dict[str, Any]:
    return {prefix: kind for prefix, kind in faults._BY_PREFIX.items() if prefix not in prefixes}


@contextmanager
def does_not_ask_to_be_let_in() -> Generator[None]:
    """A client that follows a slot on its way with the plain request: it breaks no promise, and waits."""
    with patch.object(
        Router, "_follow", lambda self, call, asked, fault: (_follow(self, call, asked, fault)[0], call)
    ):
        yield


@contextmanager
def counting_let_in(said: Counter[str]) -> Generator[None]:
    """Count as "let in" each request that a node serves since it asks to be let in."""

    def counted(self: Cluster, node: Any, call: Call) -> str:
        found = _refusal(self, node, call)
        said["let in"] += not found and isinstance(call, Asking) and slot_of(call.words()[0]) in self.moving
        return found

    with patch.object(Cluster, "refusal", counted):
        yield


CLIENTS: dict[str, Callable[[], list[Any]]] = {
    "a redirected acquire is a new one": lambda: [patch.object(Router, "_follow", _as_new)],
    "the map of slots is loaded once": lambda: [patch.object(Router, "refresh", _loads_once)],
    "a slot on its way is taken for a broken script": lambda: [
        patch.object(faults, "_BY_PREFIX", _without("TRYAGAIN"))
    ],
    "every node may take its time to return the map": lambda: [
        patch.object(Router, "_load", _asks_without_an_end)
    ],
    "a master serves what it gave away": lambda: [patch.object(Cluster, "refusal", _serves_on)],
    "a node runs scripts on half of the keys": lambda: [patch.object(Cluster, "_half", _lets_half)],
}
"""Wrong clients and nodes: each a list of patches."""

SCRIPTS: dict[str, tuple[str, str]] = {
    "a downgrade takes the writer out before the reader is in": (
        "    call('ZADD', NAME, digits(held.expiry), '1:' .. token)\n    call('ZREM', NAME, 'x:' .. token)\n",
        "    call('ZREM', NAME, 'x:' .. token)\n    call('ZADD', NAME, digits(held.expiry), '1:' .. token)\n",
    ),
    "requests are forgotten before one is remembered": (
        "  call('ZADD', SEEN, digits(now_ms + remember_ms), token)\n",
        (
            "  call('ZREMRANGEBYSCORE', SEEN, '-inf', digits(now_ms))\n"
            "  call('ZADD', SEEN, digits(now_ms + remember_ms), token)\n"
        ),
    ),
    "dead holders go before others are in": (
        "  local cur = mint(#grants, longest)\n",
        (
            "  for _, member in ipairs(state.dead) do\n    call('ZREM', NAME, member)\n  end\n"
            "  local cur = mint(#grants, longest)\n"
        ),
    ),
}
"""Scripts that a slot on its way stops after their first write."""

WHERE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = dict.fromkeys(CLIENTS, (("mutex",), ("cluster",)))
WHERE |= {
    name: ((family,), ("cluster",))
    for name, family in zip(SCRIPTS, ("rwlock", "latch", "rwlock"), strict=True)
}

FAULTS: dict[str, tuple[str, ...]] = {
    "a redirected acquire is a new one": ("slot_move",),
    "the map of slots is loaded once": ("failover_synced",),
    "a slot on its way is taken for a broken script": ("slot_half",),
    "a master serves what it gave away": ("slot_move",),
    "a node runs scripts on half of the keys": ("slot_half",),
    **dict.fromkeys(SCRIPTS, ("slot_half",)),
}
"""Which faults show it soonest."""
