"""The health of the server, and who is notified of what happens: two parts of a client's state."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pawlock.core.protocol.carrier import Request
    from pawlock.core.protocol.outcomes import Outcome
    from pawlock.core.state.circuit_breaker import CircuitBreaker
    from pawlock.core.state.observers import Observers
    from pawlock.core.state.session import SessionPublisher

__all__ = ["Health", "KeyExplainer", "Reports"]

KeyExplainer: TypeAlias = "Callable[[Request], Sequence[tuple[Request, Callable[[Outcome], str]]]]"
"""See ``ServerEngine.explain_keys``."""


class Health:
    """The health of the server. Changed by ``retry``, ``keep.server_check`` and the maintenance.

    Attributes:
        server: Its address, without credentials.
        circuit_breaker: Open while it is down for long; None while it is not.
        probe: Makes what asks it what it is (``ServerEngine.probe``); None: nobody wants to know.
        explain_keys: What a refused request found at its keys, for errors (``ServerEngine.explain_keys``); or None.
        look_at: When the maintenance is to ask.
        looked: Whether it did.
        strict: True until it was found to keep every promise, for a client that insists on it.
    """

    def __init__(self) -> None:
        self.server: str = ""
        self.circuit_breaker: CircuitBreaker | None = None
        self.probe: Callable[..., Request] | None = None
        self.explain_keys: KeyExplainer | None = None
        self.look_at: float = inf
        self.looked: bool = False
        self.strict: bool = False


def _as_it_is(record: object) -> object:
    return record


class Reports:
    """Who is notified of what happens, and how. Set when the client is made, or an observer is added.

    Attributes:
        counters: What happened how often.
        observer: Who is notified of what happens; None, and then no cost, until somebody asks for it.
        publisher: The client's session, as far as others see it; None: they do not.
        show: Makes of the record of a lease what its user sees of it; the record itself without an API.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.observer: Observers | None = None
        self.publisher: SessionPublisher | None = None
        self.show: Callable[[Any], object] = _as_it_is
