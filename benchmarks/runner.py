"""Runs the rounds: every round of a scenario starts its participants anew and lets them take turns.

All participants of a scenario are measured in the same rounds, in turns of a fraction of a second and in an
order that rotates, because the machine's weather changes by a factor of two from minute to minute: only what
was measured in the same minute can be compared.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise

from benchmarks import placement
from benchmarks.model import Participant, Sample, Scenario, ViolationError
from benchmarks.peers import PEERS
from benchmarks.process import Child, ParticipantError
from benchmarks.server import Server, Snapshot, Stats
from benchmarks.stats import percentile
from benchmarks.worker import Job

START = 30.0  # s for a process to import its libraries and connect
WARM_UP = 0.2  # s of the real work before anything counts
WARM_UP_TURNS = 2
HOLD = (0.12, 0.32)  # s
PATIENCE = 30.0  # s on top of the time that a command takes by design


@dataclass(slots=True)
class Results:
    """What was measured: samples by scenario and participant, one of each per round."""

    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict[str, dict[str, list[Sample]]])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    violation: str | None = None

    def of(self, scenario: str, participant: str) -> list[Sample]:
        """Return the samples of one participant, in the order of the rounds."""
        return self.samples.setdefault(scenario, {}).setdefault(participant, [])


def quick(scenario: Scenario) -> Scenario:
    """Return a scenario that takes a quarter of the time; its numbers are for a first look."""
    return replace(scenario, slices=max(1, scenario.slices // 2), seconds=scenario.seconds / 2)


def run(scenarios: Iterable[Scenario], rounds: int, say: Callable[[str], None]) -> Results:
    """Run all scenarios for a number of rounds.

    Every round visits every scenario, so that each is spread over the whole run.

    Args:
        scenarios: What to run.
        rounds: How often.
        say: Told of progress, one short line at a time.

    Returns:
        The samples. After a violation the run ends at once and `violation` says what happened.
    """
    results = Results()
    ready = [_present(scenario, results) for scenario in scenarios]
    with ExitStack() as stack, Server(unix=True, tcp=True, persist=False) as server:
        most = max((scenario.nodes for scenario in ready), default=1)
        others = [stack.enter_context(Server(unix=False, persist=False)) for _ in range(most - 1)]
        if any(scenario.pinned for scenario in ready):
            placement.pin(server.pid, placement.server())
        for number in range(rounds):
            for scenario in ready:
                say(f"round {number + 1}/{rounds} {scenario.name}")
                try:
                    _round(server, others, scenario, number, results)
                except ViolationError as error:
                    results.violation = f"{scenario.name}: {error}"
                    return results
    return results


def _present(scenario: Scenario, results: Results) -> Scenario:
    present: list[Participant] = []
    for participant in scenario.participants:
        reason = PEERS[participant.peer].missing()
        if reason is None:
            present.append(participant)
        else:
            results.left_out[participant.peer] = reason
    return replace(scenario, participants=tuple(present))


def _address(server: Server, others: Sequence[Server], nodes: int) -> str:
    return "redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in (server, *others[: nodes - 1]))


def _round(
    server: Server, others: Sequence[Server], scenario: Scenario, number: int, results: Results
) -> None:
    for node in (server, *others):
        node.command("FLUSHALL")
    turn = number % max(1, len(scenario.participants))
    playing = [
        participant
        for participant in (*scenario.participants[turn:], *scenario.participants[:turn])
        if f"{scenario.name} {participant.key}" not in results.failures
    ]
    play = _TurnRound if scenario.workload == "turns" else _SliceRound
    with ExitStack() as stack:
        players = [play(server, others, scenario, participant, stack) for participant in playing]
        alive = _each(scenario, players, results, lambda player: player.warm_up())
        for node in others[: scenario.hung]:
            stack.enter_context(node.paused())
        for _ in range(scenario.slices):
            alive = _each(scenario, alive, results, lambda player: player.play())
        for player in alive:
            results.of(scenario.name, player.key).append(player.sample())


def _each(
    scenario: Scenario, players: Sequence[_Round], results: Results, step: Callable[[_Round], None]
) -> list[_Round]:
    """Let every player make a step; one that fails is out of this scenario for the rest of the run."""
    alive: list[_Round] = []
    for player in players:
        try:
            step(player)
        except ParticipantError as error:
            results.failures[f"{scenario.name} {player.key}"] = str(error)
        else:
            alive.append(player)
    return alive


class _Round(ABC):
    """One participant during one round."""

    def __init__(
        self, server: Server, others: Sequence[Server], scenario: Scenario, participant: Participant
    ) -> None:
        self.key = participant.key
        self._server = server
        self._scenario = scenario
        self._peer = PEERS[participant.peer]
        self._cpus = placement.clients(scenario.workers) if scenario.pinned else None
        self._job = Job(
            peer=participant.peer,
            workload=participant.workload or scenario.workload,
            url=server.url if scenario.nodes == 1 else _address(server, others, scenario.nodes),
            name=f"bench-{scenario.name.lower()}-{participant.key}",
            workers=scenario.workers,
            options=dict(participant.options),
        )

    @abstractmethod
    def warm_up(self) -> None:
        """Do some of the work uncounted."""

    @abstractmethod
    def play(self) -> None:
        """Take one turn."""

    @abstractmethod
    def sample(self) -> Sample:
        """Return what the turns of this round add up to."""


class _SliceRound(_Round):
    """A participant that works for a while and reports how much it did."""

    def __init__(
        self,
        server: Server,
        others: Sequence[Server],
        scenario: Scenario,
        participant: Participant,
        stack: ExitStack,
    ) -> None:
        super().__init__(server, others, scenario, participant)
        self._child = stack.enter_context(Child(self._job, self._cpus, self._peer.program))
        self._stats = Stats()
        self._sums: Sample = {}

    def warm_up(self) -> None:
        self._child.hear(START)
        self._child.ask({"seconds": min(WARM_UP, self._scenario.seconds)}, PATIENCE)

    def play(self) -> None:
        seconds = self._scenario.seconds
        before = Snapshot.of(self._server)
        answer = self._child.ask({"seconds": seconds}, seconds + PATIENCE)
        self._stats.add(before, Snapshot.of(self._server), self._peer.commands)
        for key, value in answer.items():
            self._sums[key] = self._sums.get(key, 0.0) + value

    def sample(self) -> Sample:
        raw = self._sums
        grants = max(raw["grants"], 1.0)
        sample = {
            "cpu_us_per_pair": raw["cpu"] / grants * 1e6,
            "server_us_per_pair": self._stats.cpu / grants * 1e6,
            "commands_per_grant": self._stats.commands / grants,
        }
        if "wall" in raw:
            sample["pairs_per_s"] = raw["grants"] / raw["wall"]
            sample["us_per_pair"] = raw["wall"] / grants * 1e6
            sample["thread_cpu_us_per_pair"] = raw["thread_cpu"] / grants * 1e6
        else:
            sample["handoffs_per_s"] = raw["handoffs"] / raw["window"]
            sample["acquisitions_per_s"] = raw["acquisitions"] / raw["window"]
            means = ("jain", "most_to_least", "wait_p50_ms", "wait_p99_ms", "wait_max_ms")
            sample |= {key: raw[key] / self._scenario.slices for key in means}
        return sample


class _TurnRound(_Round):
    """Two processes of one library that pass a lock to and fro."""

    def __init__(
        self,
        server: Server,
        others: Sequence[Server],
        scenario: Scenario,
        participant: Participant,
        stack: ExitStack,
    ) -> None:
        super().__init__(server, others, scenario, participant)
        self._children = [
            stack.enter_context(Child(self._job, self._cpus, self._peer.program)) for _ in range(2)
        ]
        self._wakes: list[float] = []
        self._last_fence = 0.0

    def warm_up(self) -> None:
        for child in self._children:
            child.hear(START)
        self._pass(WARM_UP_TURNS)

    def play(self) -> None:
        self._wakes += self._pass(int(self._scenario.seconds))

    def sample(self) -> Sample:
        wakes = [wake * 1000 for wake in self._wakes]
        return {
            "wake_min_ms": min(wakes),
            "wake_p50_ms": percentile(wakes, 0.5),
            "wake_p90_ms": percentile(wakes, 0.9),
            "wake_p99_ms": percentile(wakes, 0.99),
            "wakes": float(len(wakes)),
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
