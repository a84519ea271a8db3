"""What the simulator found in the scripts: the smallest steps that showed it, on real servers."""

from __future__ import annotations

from tests.unit.scripts.model import take
from tests.unit.scripts.rig import Rig, token

A, B, C = token("a"), token("b"), token("c")


def test_a_ticket_that_comes_too_late_serves_the_next_waiter(rig: Rig) -> None:
    """Adopting found the name free with somebody queued, and went away without a word."""
    rig.acquire(A, ttl=100)
    rig.acquire(B, ttl=1000, ticket_ttl=1000)
    rig.advance(200)
    assert rig.run("adopt", (C, A, 1000, rig.fence_ttl), dead=C) == ("U", "none")
    assert take(rig).value == B
    assert rig.queue() == []


def test_a_late_ticket_whose_copy_is_dead_changes_nothing(rig: Rig) -> None:
    rig.acquire(A, ttl=100)
    rig.acquire(B, ttl=1000, ticket_ttl=1000)
    rig.leave(C, tomb=5000)
    rig.advance(200)
    assert rig.run("adopt", (C, A, 1000, rig.fence_ttl), dead=C) == ("X",)
    assert take(rig).value is None
