"""What a round of each kind of scenario is: the classes that drive participants."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.rounds.base import Round, RoundContext
from benchmarks.rounds.crowd import CrowdRound
from benchmarks.rounds.scale import LeasesRound, NamesRound, WaitersRound
from benchmarks.rounds.slices import SliceRound
from benchmarks.rounds.turns import TurnRound

__all__ = ["KINDS", "Round", "RoundContext"]

KINDS: Mapping[str, type[Round]] = MappingProxyType(
    {
        "turns": TurnRound,
        "crowd": CrowdRound,
        "leases": LeasesRound,
        "waiters": WaitersRound,
        "names": NamesRound,
        "slices": SliceRound,
    }
)
"""By the `workload` of a scenario; whatever is not here is played in slices."""
