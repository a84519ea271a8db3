"""One participant during one round: its processes, its turns, and what they add up to."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

from benchmarks import placement
from benchmarks.events import Event, counted, judge, percentile
from benchmarks.model import Participant, Sample, Scenario, ViolationError
from benchmarks.peers import PEERS
from benchmarks.process import ParticipantError, Program
from benchmarks.server import Server, Snapshot, Stats, used_memory
from benchmarks.worker import Job

__all__ = ["KINDS", "Round", "RoundContext"]

START = 90.0  # s for a process to import its libraries and connect
PATIENCE = 30.0  # s on top of the time that a command takes by design
WARM_UP = 0.2  # s of the real work before anything counts


@dataclass(frozen=True, slots=True)
class RoundContext:
    """Where a round takes place: the servers, the scenario, and what is to be closed when it ends."""

    server: Server
    others: Sequence[Server]
    scenario: Scenario
    stack: ExitStack


class Round(ABC):
    """One participant during one round.

    Args:
        context: Where.
        participant: Who.
        processes: How many it has.
    """

    def __init__(self, context: RoundContext, participant: Participant, processes: int = 1) -> None:
        scenario, self._server = context.scenario, context.server
        self.key = participant.key
        self._scenario = scenario
        self._peer = PEERS[participant.peer]
        self._crowd = scenario.workers * processes
        self._stats = Stats()
        self._job = Job(
            peer=participant.peer,
            workload=scenario.workload,
            url=self._address(context),
            name=f"bench-{scenario.name.lower()}-{participant.key}",
            workers=scenario.workers,
            tasks=scenario.tasks if participant.tasks is None else participant.tasks,
            options=dict(participant.options),
        )
        cpus = placement.clients(self._crowd) if scenario.pinned else None
        self._programs = [
            context.stack.enter_context(Program(self._job, cpus, self._peer.program, participant.src))
            for _ in range(processes)
        ]

    def _address(self, context: RoundContext) -> str:
        if context.scenario.nodes == 1:
            return context.server.url
        nodes = (context.server, *context.others[: context.scenario.nodes - 1])
        return "redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)

    def warm_up(self) -> None:
        """Let its processes start."""
        for program in self._programs:
            program.hear(START)

    @abstractmethod
    def play(self) -> None:
        """Take one turn."""

    @abstractmethod
    def sample(self) -> Sample:
        """Return what the turns of this round add up to."""

    def _ask(self, command: Sample, seconds: float) -> Sample:
        """Have the one process do something, and count what the server does for it."""
        before = Snapshot.of(self._server)
        answer = self._programs[0].ask(command, seconds + PATIENCE)
        self._stats.add(before, Snapshot.of(self._server), self._peer.commands)
        return answer


class PairRound(Round):
    """One process that takes and gives back, each worker a name of its own."""

    def __init__(self, context: RoundContext, participant: Participant) -> None:
        super().__init__(context, participant)
        self._sums: Sample = {}

    def warm_up(self) -> None:
        """Let it start and work a little."""
        super().warm_up()
        self._programs[0].ask({"seconds": WARM_UP}, PATIENCE)

    def play(self) -> None:
        """Work for the scenario's seconds, between two looks at the server's counters."""
        answer = self._ask({"seconds": self._scenario.seconds}, self._scenario.seconds)
        for key, value in answer.items():
            self._sums[key] = self._sums.get(key, 0.0) + value

    def sample(self) -> Sample:
        """Return means over the turns."""
        raw, grants = self._sums, max(self._sums["grants"], 1.0)
        means = {
            key: raw[key] / self._scenario.slices for key in ("jain", "acquire_p50_us", "acquire_p99_us")
        }
        return means | {
            "pairs_per_s": raw["grants"] / raw["wall"],
            "us_per_pair": raw["wall"] / grants * 1e6,
            "cpu_us_per_pair": raw["cpu"] / grants * 1e6,
            "server_us_per_pair": self._stats.cpu / grants * 1e6,
            "commands_per_grant": self._stats.commands / grants,
        }


class CrowdRound(Round):
    """Workers of one or several processes, all after one name, each inside for a given time."""

    SETTLE = 0.3  # s of full load before counting begins
    LEAD = 0.05  # s between telling everybody and the common start
    JUDGED = 3000  # grants of a turn that the history checker looks at
    DRAIN = 20.0  # s within which the last waiters must have been served

    def __init__(self, context: RoundContext, participant: Participant) -> None:
        super().__init__(context, participant, context.scenario.processes)
        self._windows: list[Sample] = []
        self._grants, self._cpu = 0, 0.0

    def warm_up(self) -> None:
        """Let all start and work a little."""
        super().warm_up()
        self._work(WARM_UP, counting=False)

    def play(self) -> None:
        """Work for the scenario's seconds; the window between two looks at the server is what counts."""
        self._work(self._scenario.seconds, counting=True)

    def _work(self, seconds: float, *, counting: bool) -> None:
        start, whole = time.monotonic() + self.LEAD, self.SETTLE + seconds
        for program in self._programs:
            program.tell({"start": start, "seconds": whole, "section": self._scenario.section_ms / 1000})
        time.sleep(max(0.0, start + self.SETTLE - time.monotonic()))
        before, begin = Snapshot.of(self._server), time.monotonic()
        time.sleep(seconds)
        end, after = time.monotonic(), Snapshot.of(self._server)
        answers = [program.hear(whole + self.DRAIN + PATIENCE) for program in self._programs]
        if not counting:
            return
        events: list[Event] = [
            [event[0] + number * self._scenario.workers, *event[1:]]
            for number, answer in enumerate(answers)
            for event in answer["events"]
        ]
        judge(self._job.name, sorted(events, key=lambda event: event[2] or 0.0)[: self.JUDGED])
        self._stats.add(before, after, self._peer.commands)
        self._windows.append(counted(events, self._crowd, begin, end))
        self._grants += len(events)
        self._cpu += sum(answer["cpu"] for answer in answers)

    def sample(self) -> Sample:
        """Return means over the turns."""
        windows = self._windows
        grants = max(1.0, sum(window["grants"] for window in windows))
        wall = sum(window["window"] for window in windows)
        section = sum(window["section_s"] * window["grants"] for window in windows) / grants
        mean: Sample = {
            key: sum(window[key] for window in windows) / len(windows)
            for key in ("jain", "most_to_least", "wait_p50_ms", "wait_p99_ms", "wait_max_ms")
        }
        return mean | {
            "acquisitions_per_s": grants / wall,
            "handoffs_per_s": sum(window["handoffs"] for window in windows) / wall,
            "section_ms": section * 1000,
            "share_of_ceiling": grants / wall * section,
            "wait_p99_to_ideal": mean["wait_p99_ms"] / max(self._crowd * section * 1000, 1e-9),
            "commands_per_grant": self._stats.commands / grants,
            "commands_per_s": self._stats.commands / wall,
            "server_us_per_pair": self._stats.cpu / grants * 1e6,
            "cpu_us_per_pair": self._cpu / max(1, self._grants) * 1e6,
        }


class TurnRound(Round):
    """Two processes that pass a lock to and fro: how long the waiter takes to know that it holds is what counts."""

    HOLD = (0.06, 0.26)  # s

    def __init__(self, context: RoundContext, participant: Participant) -> None:
        super().__init__(context, participant, 2)
        self._wakes: list[float] = []
        self._last_fence = 0.0

    def warm_up(self) -> None:
        """Start both and pass the lock a few times."""
        super().warm_up()
        self._pass(2)

    def play(self) -> None:
        """Pass the lock as often as the scenario says."""
        before = Snapshot.of(self._server)
        self._wakes += self._pass(int(self._scenario.seconds))
        self._stats.add(before, Snapshot.of(self._server), self._peer.commands)

    def sample(self) -> Sample:
        """Return percentiles of the wake-ups."""
        wakes = [wake * 1000 for wake in self._wakes]
        return {
            "wake_min_ms": min(wakes),
            "wake_p50_ms": percentile(wakes, 0.5),
            "wake_p90_ms": percentile(wakes, 0.9),
            "wake_p99_ms": percentile(wakes, 0.99),
            "commands_per_grant": self._stats.commands / len(wakes),
        }

    def _pass(self, turns: int) -> list[float]:
        """Let the two take turns; return the seconds from each release to the next grant."""
        acquired: list[float] = []
        releasing: list[float] = []
        for number in range(turns + 1):
            program = self._programs[number % 2]
            # From the second turn on the other one holds by now, and this one's request waits for its release.
            program.tell({"hold": random.uniform(*self.HOLD) if number < turns else 0.0})
            if number:
                releasing.append(self._programs[(number - 1) % 2].hear(PATIENCE)["releasing"])
            answer = program.hear(PATIENCE)
            acquired.append(answer["acquired"])
            fence = answer.get("fence", self._last_fence + 1)
            if fence <= self._last_fence:
                raise ViolationError(f"{self._job.name}: fence {fence:.0f} after {self._last_fence:.0f}")
            self._last_fence = fence
        releasing.append(self._programs[turns % 2].hear(PATIENCE)["releasing"])
        wakes = [grant - release for release, grant in zip(releasing, acquired[1:], strict=False)]
        if min(wakes) < 0 or any(later < earlier for earlier, later in pairwise(acquired)):
            raise ViolationError(f"{self._job.name}: acquired before the release: {wakes}")
        return wakes


class LeasesRound(Round):
    """So many leases held and renewed: the cost of a second, on both sides, and the memory of one lease."""

    def play(self) -> None:
        """Take them over one renewal period, then watch one whole period of renewals."""
        period, size = self._scenario.seconds, self._job.options["size"]
        before = used_memory(self._server)
        taken = self._ask({"take": size, "over": period}, period + size / 2000)
        held = used_memory(self._server)
        self._stats = Stats()
        watched = self._ask({"watch": period}, period)
        self._sample: Sample = {
            "client_bytes": taken["bytes"] / size,
            "server_bytes": (held - before) / size,
            "core_share": watched["cpu"] / watched["wall"],
            "server_core_share": self._stats.cpu / watched["wall"],
            "commands_per_s": self._stats.commands / watched["wall"],
            "cpu_us_per_renewal": watched["cpu"] / size * 1e6,
            "server_us_per_renewal": self._stats.cpu / size * 1e6,
        }
        self._ask({"drop": 1.0}, size / 2000)

    def sample(self) -> Sample:
        """Return what was found, and end the process: who plays next must not pay for it."""
        for program in self._programs:
            program.close()
        self._server.command("FLUSHALL")
        return self._sample


class WaitersRound(LeasesRound):
    """So many waiters behind one name: what one release costs."""

    SERVED = 1000
    IDLE = 1.5  # s in which nobody is served: more than it takes each waiter to say that it still waits

    def play(self) -> None:
        """Queue them, look at what it costs that they wait, then let some have the name."""
        size = self._job.options["size"]
        queued = self._ask({"queue": size}, size / 2000)
        until = time.monotonic() + PATIENCE
        while self._server.command("ZCARD", f"{{pawlock:{self._job.name}}}:1:queue") != size:
            if time.monotonic() > until:
                raise ParticipantError(f"{self._job.name}: not all of its waiters stand in the queue")
            time.sleep(0.05)
        before, idle = Snapshot.of(self._server), Stats()
        time.sleep(self.IDLE)
        idle.add(before, Snapshot.of(self._server), self._peer.commands)
        self._stats = Stats()
        served = self._ask({"serve": min(size, self.SERVED)}, size / 2000)
        number = served["served"]
        self._sample = {
            "commands_per_release": self._stats.commands / number,
            "server_us_per_release": self._stats.cpu / number * 1e6,
            "cpu_us_per_release": served["cpu"] / number * 1e6,
            "us_per_release": served["wall"] / number * 1e6,
            "idle_commands_per_s": idle.commands / self.IDLE,
            "client_bytes": queued["bytes"] / size,
        }


KINDS: Mapping[str, type[PairRound | CrowdRound | TurnRound | LeasesRound]] = {
    "pairs": PairRound,
    "crowd": CrowdRound,
    "turns": TurnRound,
    "leases": LeasesRound,
    "waiters": WaitersRound,
}
"""By the `workload` of a scenario."""
