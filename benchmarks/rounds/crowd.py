"""Several processes with several workers each, all after one name, each inside for a given time."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.events import Event, counted, judge
from benchmarks.model import Participant, Sample
from benchmarks.rounds.base import PATIENCE, START, Round, RoundContext
from benchmarks.server import Snapshot, Stats

SETTLE = 0.3  # s of full load before counting begins
LEAD = 0.05  # s between telling everybody and the common start
JUDGED = 3000  # grants of a turn that the history checker looks at
DRAIN = 20.0  # s within which the last waiters must have been served


class CrowdRound(Round):
    """What one library makes of a crowd."""

    def __init__(self, context: RoundContext, participant: Participant) -> None:
        super().__init__(context, participant)
        if not self._job.workload.startswith("crowd-"):
            self._job = self._job.but(workload="crowd-threads")
        self._children = self._start(self._processes).children
        self._stats = Stats()
        self._events: list[Event] = []
        self._windows: list[Sample] = []
        self._cpu = 0.0

    def warm_up(self) -> None:
        """Let all start and work a little."""
        for child in self._children:
            child.hear(START)
        self._work(self._peer.warm_up)

    def play(self) -> None:
        """Work for the scenario's seconds; the window between two looks at the server is what counts."""
        self._work(self._scenario.seconds, counting=True)

    def _work(self, seconds: float, *, counting: bool = False) -> None:
        start = time.monotonic() + LEAD
        whole = SETTLE + seconds
        section = self._scenario.section_ms / 1000
        for child in self._children:
            child.tell({"start": start, "seconds": whole, "section": section})
        time.sleep(max(0.0, start + SETTLE - time.monotonic()))
        before, begin = Snapshot.of(self._server), time.monotonic()
        time.sleep(seconds)
        end, after = time.monotonic(), Snapshot.of(self._server)
        answers: list[dict[str, Any]] = [child.hear(whole + DRAIN + PATIENCE) for child in self._children]
        if not counting:
            return
        events: list[Event] = [
            [event[0] + number * self._workers, *event[1:]]
            for number, answer in enumerate(answers)
            for event in answer["events"]
        ]
        judge(self._job.name, sorted(events, key=lambda event: event[2] or 0.0)[:JUDGED])
        self._stats.add(before, after, self._peer.commands)
        self._events += events
        self._windows.append(counted(events, self._workers * self._processes, begin, end))
        self._cpu += sum(answer["cpu"] for answer in answers)

    def sample(self) -> Sample:
        """Return means over the turns."""
        windows = self._windows
        grants = max(1.0, sum(window["grants"] for window in windows))
        wall = sum(window["window"] for window in windows)
        section = sum(window["section_s"] * window["grants"] for window in windows) / grants
        crowd = self._workers * self._processes
        mean: Sample = {
            key: sum(window[key] for window in windows) / len(windows)
            for key in ("jain", "most_to_least", "wait_p50_ms", "wait_p99_ms", "wait_max_ms")
        }
        ideal_ms = crowd * section * 1000
        return mean | {
            "acquisitions_per_s": grants / wall,
            "handoffs_per_s": sum(window["handoffs"] for window in windows) / wall,
            "section_ms": section * 1000,
            "share_of_ceiling": grants / wall * section,
            "wait_p99_to_ideal": mean["wait_p99_ms"] / ideal_ms if ideal_ms else float("nan"),
            "commands_per_grant": self._stats.commands / grants,
            "commands_per_s": self._stats.commands / wall,
            "server_us_per_pair": self._stats.cpu / grants * 1e6,
            "cpu_us_per_pair": self._cpu / max(1, len(self._events)) * 1e6,
        }
