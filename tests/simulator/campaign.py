"""Many seeds in a row: what was found, and what was covered."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.simulator.drawing import draw
from tests.simulator.plan import BY_MESSAGE, FAULTS, MASTERS, OPERATIONS, TOPOLOGIES, Plan
from tests.simulator.shrink import shrink
from tests.simulator.simulation import Result, quiet, run

__all__ = ["Finding", "Report", "may_meet", "simulate"]

_ALL_EVERY = 100
_SENDS_NOTHING = ("hold",)
_NOT_ON_MASTERS = ("pass_on", "observe", "count", "wait", "reset")


@dataclass(frozen=True)
class Finding:
    """A seed that broke a promise.

    Attributes:
        seed: The seed.
        result: What came of it.
        smallest: The smallest plan found that breaks the same promise.
    """

    seed: int
    result: Result
    smallest: Plan


@dataclass
class Report:
    """What came of many seeds.

    Attributes:
        seeds: How many were run.
        operations: How many operations they were given, in all.
        second_owners: In how many somebody else took a name over after its holder had lost it.
        primitives: How many by kind of lock.
        topologies: How many by family of primitives and by what the servers are to each other.
        counts: What happened how often; pairs are a fault and the operation that it struck.
        findings: What was wrong.
        seconds: How long it took, of one core.
    """

    seeds: int = 0
    operations: int = 0
    second_owners: int = 0
    primitives: Counter[str] = field(default_factory=Counter[str])
    topologies: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    counts: Counter[object] = field(default_factory=Counter[object])
    findings: list[Finding] = field(default_factory=list[Finding])
    seconds: float = 0.0

    def add(self, plan: Plan, result: Result) -> None:
        """Count one run."""
        self.seeds += 1
        self.operations += plan.operations
        self.primitives.update({kind for kind, _, _ in plan.locks})
        self.topologies[plan.primitive, plan.topology] += 1
        self.counts.update(result.counts)
        self.second_owners += bool(result.counts.get("second owner after a loss"))

    def merge(self, other: Report) -> None:
        """Add another report to this; the seconds too, as one core would have taken them."""
        self.seeds += other.seeds
        self.operations += other.operations
        self.second_owners += other.second_owners
        self.primitives += other.primitives
        self.topologies += other.topologies
        self.counts += other.counts
        self.findings += other.findings
        self.seconds += other.seconds

    def missing(self) -> list[tuple[str, str]]:
        """Faults and operations that could have met and never did."""
        return [
            (fault, what)
            for fault in FAULTS
            for what in OPERATIONS
            if not self.counts[fault, what] and may_meet(fault, what)
        ]

    def table(self) -> str:
        """How often each fault met each operation, for a person to read."""
        lines = [f"{'':18}" + "".join(f"{what:>10}" for what in OPERATIONS)]
        lines += [
            f"{fault:18}" + "".join(f"{self.counts[fault, what]:>10}" for what in OPERATIONS)
            for fault in FAULTS
        ]
        families = sorted({family for family, _ in self.topologies})
        lines += ["", f"{'':18}" + "".join(f"{topology:>11}" for topology in TOPOLOGIES)]
        lines += [
            f"{family:18}" + "".join(f"{self.topologies[family, topology]:>11}" for topology in TOPOLOGIES)
            for family in families
        ]
        return "\n".join(lines)

    def summary(self) -> str:
        """The numbers, for a person to read."""
        rate = self.seeds / self.seconds if self.seconds else 0.0
        share = 100 * self.second_owners / max(1, self.seeds)
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.primitives.items()))
        return (
            f"{self.seeds} seeds, {self.operations} operations, {rate:.0f} seeds/s of one core; "
            f"a second owner after a loss in {share:.1f} %; {kinds}; {len(self.findings)} violations"
        )


def may_meet(fault: str, operation: str) -> bool:
    """Whether a fault can strike an operation at all."""
    if fault == "message_loss":
        return operation == "acquire"
    if fault in MASTERS and operation in _NOT_ON_MASTERS:
        return False
    return fault not in BY_MESSAGE or operation not in _SENDS_NOTHING


def simulate(
    seeds: Iterable[int],
    *,
    smallest: bool = True,
    most_findings: int = 5,
    progress: Callable[[Report], object] | None = None,
    drawn: Callable[[int], Plan] = draw,
    runs: Callable[[Plan], Result] = run,
) -> Report:
    """Run seeds, one after the other.

    Args:
        seeds: Which.
        smallest: Whether to look for the smallest plan of each that fails; default True.
        most_findings: After how many that fail to stop; default 5.
        progress: Called with the report now and then.
        drawn: Makes a plan of a seed.
        runs: Runs a plan.
    """
    report = Report()
    began = time.process_time()
    with quiet():
        for seed in seeds:
            plan = drawn(seed)
            result = runs(plan)
            report.add(plan, result)
            if result.violation:
                found = shrink(plan, runs) if smallest else plan
                report.findings.append(Finding(seed, runs(found) if smallest else result, found))
                if len(report.findings) >= most_findings:
                    break
            # What a run leaves in circles goes at once: memory that is used again is in the processor's cache.
            gc.collect(0)
            if report.seeds % _ALL_EVERY == 0:
                gc.collect()
                report.seconds = time.process_time() - began
                if progress is not None:
                    progress(report)
    report.seconds = time.process_time() - began
    return report
