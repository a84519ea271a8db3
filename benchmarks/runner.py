"""Runs the rounds: every round of a scenario starts its participants anew and lets them take turns.

All participants of a scenario are measured in the same rounds, in turns of a fraction of a second and in an
order that rotates, because the machine's weather changes by a factor of two from minute to minute: only what
was measured in the same minute can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from benchmarks import placement
from benchmarks.model import Sample, Scenario, ViolationError
from benchmarks.peers import PEERS
from benchmarks.process import ParticipantError
from benchmarks.rounds import KINDS, Round, RoundContext
from benchmarks.server import Server


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


def run(scenarios: Iterable[Scenario], rounds: int, say: Callable[[str], None]) -> Results:
    """Run all scenarios for a number of rounds.

    Every round visits every scenario, so that each is spread over the whole run.

    Args:
        scenarios: What to run.
        rounds: How often.
        say: Told of progress, one short line at a time.

    Returns:
        The samples. After a violation the run ends at once and `violation` says what happened; after an interrupt
        too, with what came to an end until then, and `interrupted` is true.
    """
    results = Results(interrupted=True)
    with suppress(KeyboardInterrupt):
        _run(results, scenarios, rounds, say)
        results.interrupted = False
    return results


def _run(results: Results, scenarios: Iterable[Scenario], rounds: int, say: Callable[[str], None]) -> None:
    ready = [_present(scenario, results) for scenario in scenarios]
    with ExitStack() as stack, Server(unix=True, tcp=True, persist=False) as server:
        most = max((scenario.nodes for scenario in ready), default=1)
        others = [stack.enter_context(Server(unix=False, persist=False)) for _ in range(most - 1)]
        for number in range(rounds):
            for scenario in ready:
                say(f"round {number + 1}/{rounds} {scenario.name}")
                try:
                    _round(server, others, scenario, number, results)
                except ViolationError as error:
                    results.violation = f"{scenario.name}: {error}"
                    return


def _present(scenario: Scenario, results: Results) -> Scenario:
    missing = {participant.peer: PEERS[participant.peer].missing() for participant in scenario.participants}
    results.left_out |= {peer: reason for peer, reason in missing.items() if reason is not None}
    present = tuple(one for one in scenario.participants if missing[one.peer] is None)
    return replace(scenario, participants=present)


def _round(
    server: Server, others: Sequence[Server], scenario: Scenario, number: int, results: Results
) -> None:
    for node in (server, *others):
        node.command("FLUSHALL")
    if scenario.pinned:
        placement.pin(server.pid, placement.server())
    first = number % max(1, len(scenario.participants))
    playing = [
        participant
        for participant in (*scenario.participants[first:], *scenario.participants[:first])
        if f"{scenario.name} {participant.key}" not in results.failures
    ]
    with ExitStack() as stack:
        context = RoundContext(server, others, scenario, stack)
        players = [KINDS[scenario.workload](context, participant) for participant in playing]
        alive = _each(scenario, players, results, lambda player: player.warm_up())
        for node in others[: scenario.hung]:
            stack.enter_context(node.paused())
        for _ in range(scenario.slices):
            alive = _each(scenario, alive, results, lambda player: player.play())
        for player in alive:
            results.of(scenario.name, player.key).append(player.sample())


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
