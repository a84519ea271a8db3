"""Runs the rounds: every round of a scenario starts its participants anew and lets them take turns.

All participants of a scenario are measured in the same rounds, in turns of a fraction of a second and in an
order that rotates, because the machine's weather changes by a factor of two from minute to minute: only what
was measured in the same minute can be compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from benchmarks import placement
from benchmarks.model import Participant, Sample, Scenario, ViolationError
from benchmarks.peers import PEERS
from benchmarks.process import ParticipantError
from benchmarks.rounds import KINDS, Round, RoundContext
from benchmarks.server import Server

QUICK_SIZE = 10_000


@dataclass(slots=True)
class Results:
    """What was measured: samples by scenario and participant, one of each per round."""

    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict[str, dict[str, list[Sample]]])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    violation: str | None = None
    interrupted: bool = False

    def of(self, scenario: str, participant: str) -> list[Sample]:
        """Return the samples of one participant, in the order of the rounds."""
        return self.samples.setdefault(scenario, {}).setdefault(participant, [])


def quick(scenario: Scenario) -> Scenario:
    """Return a scenario that takes a quarter of the time; its numbers are for a first look."""
    if scenario.x:
        # What is watched takes the time that it takes: only the largest sizes are left out.
        small = tuple(p for p in scenario.participants if p.options.get("size", 0) <= QUICK_SIZE)
        return replace(scenario, participants=small, rounds=1)
    return replace(scenario, slices=max(1, scenario.slices // 2), seconds=scenario.seconds / 2)


def run(
    scenarios: Iterable[Scenario], rounds: int, say: Callable[[str], None], limit: float = math.inf
) -> Results:
    """Run all scenarios for a number of rounds.

    Every round visits every scenario, so that each is spread over the whole run.

    Args:
        scenarios: What to run.
        rounds: How often.
        say: Told of progress, one short line at a time.
        limit: Seconds; no round begins that would not end within them, as far as the longest one so far tells.

    Returns:
        The samples. After a violation the run ends at once and `violation` says what happened; after an interrupt
        too, with what came to an end until then, and `interrupted` is true.
    """
    results = Results()
    with suppress(KeyboardInterrupt):
        results.interrupted = True
        _run(results, scenarios, rounds, say, limit)
        results.interrupted = False
    return results


def _run(
    results: Results, scenarios: Iterable[Scenario], rounds: int, say: Callable[[str], None], limit: float
) -> None:
    ready = [
        _present(scenario, results) for scenario in scenarios if placement.possible() or not scenario.pinned
    ]
    with ExitStack() as stack, Server(unix=True, tcp=True, persist=False) as server:
        most = max((scenario.nodes for scenario in ready), default=1)
        others = [stack.enter_context(Server(unix=False, persist=False)) for _ in range(most - 1)]
        begin, longest = time.monotonic(), 0.0
        for number in range(rounds):
            at = time.monotonic()
            if at - begin + longest > limit:
                break
            for scenario in ready:
                if number >= scenario.rounds:
                    continue
                say(f"round {number + 1}/{rounds} {scenario.name}")
                try:
                    _round(server, others, scenario, number, results)
                except ViolationError as error:
                    results.violation = f"{scenario.name}: {error}"
                    return
            longest = max(longest, time.monotonic() - at)


def _present(scenario: Scenario, results: Results) -> Scenario:
    present: list[Participant] = []
    for participant in scenario.participants:
        reason = PEERS[participant.peer].missing()
        if reason is None:
            present.append(participant)
        else:
            results.left_out[participant.peer] = reason
    return replace(scenario, participants=tuple(present))


def _round(
    server: Server, others: Sequence[Server], scenario: Scenario, number: int, results: Results
) -> None:
    for node in (server, *others):
        node.command("FLUSHALL")
    if placement.possible():
        placement.pin(server.pid, placement.server() if scenario.pinned else placement.anywhere())
    turn = number % max(1, len(scenario.participants))
    playing = [
        participant
        for participant in (*scenario.participants[turn:], *scenario.participants[:turn])
        if f"{scenario.name} {participant.key}" not in results.failures
    ]
    with ExitStack() as stack:
        context = RoundContext(server, others, scenario, stack)
        players = [_kind(scenario, participant)(context, participant) for participant in playing]
        alive = _each(scenario, players, results, lambda player: player.warm_up())
        time.sleep(scenario.rest)
        for node in others[: scenario.hung]:
            stack.enter_context(node.paused())
        for _ in range(scenario.slices):
            alive = _each(scenario, alive, results, lambda player: player.play())
        for player in alive:
            results.of(scenario.name, player.key).append(player.sample())


def _kind(scenario: Scenario, participant: Participant) -> type[Round]:
    """A participant may bring a round of its own kind: a program of another language is always a crowd of one."""
    return KINDS.get(participant.workload, KINDS.get(scenario.workload, KINDS["slices"]))


def _each(
    scenario: Scenario, players: Sequence[Round], results: Results, step: Callable[[Round], None]
) -> list[Round]:
    """Let every player make a step; one that fails is out of this scenario for the rest of the run."""
    alive: list[Round] = []
    for player in players:
        try:
            step(player)
        except ParticipantError as error:
            results.failures[f"{scenario.name} {player.key}"] = str(error)
        else:
            alive.append(player)
    return alive
