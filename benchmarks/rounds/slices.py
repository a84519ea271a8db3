"""A participant that works for a while and reports how much it did."""

from __future__ import annotations

from benchmarks.events import judge
from benchmarks.model import Participant, Sample
from benchmarks.rounds.base import PATIENCE, START, Round, RoundContext, trips
from benchmarks.server import Snapshot, Stats
from benchmarks.stats import median

_MEANS = (
    "jain",
    "most_to_least",
    "wait_p50_ms",
    "wait_p99_ms",
    "wait_max_ms",
    "acquire_p50_us",
    "acquire_p99_us",
    "acquire_max_us",
)


class SliceRound(Round):
    """One process that takes short turns."""

    def __init__(self, context: RoundContext, participant: Participant) -> None:
        super().__init__(context, participant)
        (self._child,) = self._start().children
        self._stats = Stats()
        self._sums: Sample = {}
        self._trips: list[float] = []

    def warm_up(self) -> None:
        """Let it start and work a little."""
        self._child.hear(START)
        self._child.ask({"seconds": self._peer.warm_up}, PATIENCE)

    def play(self) -> None:
        """Work for the scenario's seconds, between two looks at the server's counters."""
        seconds = self._scenario.seconds
        if self._proxy is not None:
            self._trips += trips(self._proxy)
        before = Snapshot.of(self._server)
        answer = self._child.ask({"seconds": seconds}, seconds + PATIENCE)
        self._stats.add(before, Snapshot.of(self._server), self._peer.commands)
        self._stats.commands -= int(answer.pop("besides", 0))
        # The first grants of a turn, with the instants around them, for the history checker.
        judge(self._job.name, answer.pop("events", []))
        for key, value in answer.items():
            self._sums[key] = self._sums.get(key, 0.0) + value

    def sample(self) -> Sample:
        """Return means over the turns."""
        raw = self._sums
        grants = max(raw["grants"], 1.0)
        sample = {
            "cpu_us_per_pair": raw["cpu"] / grants * 1e6,
            "server_us_per_pair": self._stats.cpu / grants * 1e6,
            "commands_per_grant": self._stats.commands / grants,
        }
        sample |= {key: raw[key] / self._scenario.slices for key in _MEANS if key in raw}
        if "wall" in raw:
            sample["pairs_per_s"] = raw["grants"] / raw["wall"]
            sample["us_per_pair"] = raw["wall"] / grants * 1e6
            sample["thread_cpu_us_per_pair"] = raw["thread_cpu"] / grants * 1e6
        else:
            sample["handoffs_per_s"] = raw["handoffs"] / raw["window"]
            sample["acquisitions_per_s"] = raw["acquisitions"] / raw["window"]
        if self._trips:
            trip = median(self._trips)
            took = sample.get("us_per_pair", 1e6 / max(sample.get("handoffs_per_s", 0.0), 1e-9)) / 1e6
            sample["trips_waited"] = took * self._parallel() / trip
            sample["trip_ms"] = trip * 1000
        return sample

    def _parallel(self) -> int:
        """How many pairs go on at a time."""
        return self._workers if "pair" in self._job.workload else 1
