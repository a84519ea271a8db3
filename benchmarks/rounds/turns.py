"""Two processes of one library that pass a lock to and fro."""

from __future__ import annotations

import random
from itertools import pairwise

from benchmarks.model import Participant, Sample, ViolationError
from benchmarks.rounds.base import PATIENCE, START, Round, RoundContext
from benchmarks.server import Snapshot, Stats
from benchmarks.stats import percentile

WARM_UP_TURNS = 2
HOLD = (0.06, 0.26)  # s


class TurnRound(Round):
    """The holder releases, and how long the other one takes to know that it holds is what counts."""

    def __init__(self, context: RoundContext, participant: Participant) -> None:
        super().__init__(context, participant)
        self._children = [child for _ in range(2) for child in self._start().children]
        self._wakes: list[float] = []
        self._last_fence = 0.0
        self._stats = Stats()

    def warm_up(self) -> None:
        """Start both and pass the lock a few times."""
        for child in self._children:
            child.hear(START)
        self._pass(WARM_UP_TURNS)

    def play(self) -> None:
        """Pass the lock as often as the scenario says."""
        before = Snapshot.of(self._server)
        self._wakes += self._pass(int(self._scenario.seconds))
        self._stats.add(before, Snapshot.of(self._server), self._peer.commands)

    def sample(self) -> Sample:
        """Return percentiles of the wake-ups, and each of them."""
        wakes = [wake * 1000 for wake in self._wakes]
        return {
            "wake_min_ms": min(wakes),
            "wake_p50_ms": percentile(wakes, 0.5),
            "wake_p90_ms": percentile(wakes, 0.9),
            "wake_p99_ms": percentile(wakes, 0.99),
            "wakes": float(len(wakes)),
            "commands_per_grant": self._stats.commands / len(wakes),
            "server_us_per_pair": self._stats.cpu / len(wakes) * 1e6,
            # Every single one, for whoever asks where the tail comes from.
            **{f"wake_{number:02}_ms": wake for number, wake in enumerate(wakes)},
        }

    def _pass(self, turns: int) -> list[float]:
        """Let the children take turns; return the seconds from each release to the next grant."""
        acquired: list[float] = []
        releasing: list[float] = []
        for number in range(turns + 1):
            child = self._children[number % 2]
            # From the second turn on the other one holds by now, and this one's request waits for its release.
            child.tell({"hold": random.uniform(*HOLD) if number < turns else 0.0})
            if number:
                releasing.append(self._children[(number - 1) % 2].hear(PATIENCE)["releasing"])
            answer = child.hear(PATIENCE)
            acquired.append(answer["acquired"])
            self._check_fence(answer)
        releasing.append(self._children[turns % 2].hear(PATIENCE)["releasing"])
        wakes = [grant - release for release, grant in zip(releasing, acquired[1:], strict=False)]
        if any(wake < 0 for wake in wakes):
            raise ViolationError(f"{self._job.name}: acquired {-min(wakes) * 1000:.3f} ms before the release")
        if any(later < earlier for earlier, later in pairwise(acquired)):
            raise ViolationError(f"{self._job.name}: grants out of order")
        return wakes

    def _check_fence(self, answer: Sample) -> None:
        fence = answer.get("fence")
        if fence is None:
            return
        if fence <= self._last_fence:
            raise ViolationError(f"{self._job.name}: fence {fence:.0f} after {self._last_fence:.0f}")
        self._last_fence = fence
