"""``python -m tests.simulator``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.simulator.campaign import Finding, Report, simulate
from tests.simulator.crowd import draw_crowd, draw_tangle
from tests.simulator.drawing import draw, draw_masters
from tests.simulator.jobs import add_to_file, simulate_in_parts
from tests.simulator.oracle import shown
from tests.simulator.plan import Plan
from tests.simulator.shared import draw_plain, draw_redisson
from tests.simulator.simulation import Result, quiet, run

__all__ = ["main", "story"]

_EVERY = 5.0
_LAST = 60


def story(trace: Sequence[tuple[Any, ...]], last: int | None = None) -> str:
    """A trace, one line for each event, for a person to read."""
    lines = [f"{when:9.4f}  " + " ".join(str(shown(one)) for one in what) for when, *what in trace]
    return "\n".join(lines if last is None else lines[-last:])


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _print_finding(finding: Finding) -> None:
    _say(f"seed {finding.seed}: {finding.result.violation}")
    _say(story(finding.result.trace, _LAST))
    _say(f"smallest plan: {finding.smallest.to_json()}")


def _one(plan: Plan) -> int:
    with quiet():
        result: Result = run(plan)
    _say(story(result.trace))
    _say(f"trace {result.digest}, {result.seconds:.3f} virtual seconds")
    _say(f"violation: {result.violation}" if result.violation else "no violation")
    return 1 if result.violation else 0


def _number(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def _plan(text: str) -> Plan:
    try:
        return Plan.from_json(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"{text} holds no plan ({error})") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulator",
        description="Run pawlock's protocol and scripts on virtual time, with faults, one run for each seed.",
        epilog="exit code: 0 no violation; 1 a violation; 2 a wrong call; 3 in 20,000 seeds or more a fault never met "
        "an operation that it could meet; 130 stopped by Ctrl-C",
        # --seed would else be short for --seeds, and mean something else.
        allow_abbrev=False,
    )
    parser.add_argument("--seeds", type=_number(1), default=2000, help="how many; default 2000")
    parser.add_argument("--start", type=_number(0), default=0, help="the first; default 0")
    parser.add_argument("--seed", type=_number(0), help="run this seed alone and show all that happens")
    parser.add_argument(
        "--trace", action="store_true", help="run the first seed alone and show all that happens"
    )
    parser.add_argument("--replay", type=_plan, help="run the plan in this file and show all that happens")
    parser.add_argument(
        "--as-drawn", action="store_true", help="do not look for the smallest plan that fails"
    )
    parser.add_argument("--jobs", type=_number(1), default=1, help="processes that share the work; default 1")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--masters", action="store_true", help="only seeds with several independent masters")
    kind.add_argument(
        "--crowds",
        action="store_true",
        help="seeds of another kind: many workers of a client, operators, deadlocks",
    )
    kind.add_argument(
        "--tangles",
        action="store_true",
        help="seeds of another kind: locks of every kind in any order, and many deadlocks",
    )
    kind.add_argument(
        "--strangers",
        choices=("plain", "redisson"),
        help="seeds of another kind: keys that programs other than pawlock use too, as a string or as Redisson does",
    )
    parser.add_argument("--results", type=Path, help="add the numbers to this file, for a campaign in parts")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: Those of the command line.

    Returns:
        0; 1 after a violation; 3 if in 20,000 seeds or more a fault never met an operation that it could meet; 130 if
        it was stopped by Ctrl-C.
    """
    given = _parser().parse_args(arguments)
    try:
        return _run(given)
    except KeyboardInterrupt:
        _say("stopped")
        return 130


def _run(given: argparse.Namespace) -> int:
    if given.replay is not None:
        return _one(given.replay)
    drawn = _drawn_by(given)
    if given.seed is not None or given.trace:
        return _one(drawn(given.start if given.seed is None else given.seed))
    shown_at = [time.monotonic()]

    def progress(report: Report) -> None:
        if time.monotonic() - shown_at[0] >= _EVERY:
            shown_at[0] = time.monotonic()
            _say(report.summary())

    seeds = range(given.start, given.start + given.seeds)
    how: dict[str, Any] = {"smallest": not given.as_drawn, "progress": progress, "drawn": drawn}
    report = simulate_in_parts(seeds, given.jobs, **how) if given.jobs > 1 else simulate(seeds, **how)
    if given.results is not None:
        add_to_file(given.results, seeds, report)
    for finding in report.findings:
        _print_finding(finding)
    return _sum_up(report, faults=drawn is draw)


def _drawn_by(given: argparse.Namespace) -> Callable[[int], Plan]:
    """What draws the plan of a seed."""
    if given.masters:
        return draw_masters
    if given.crowds:
        return draw_crowd
    if given.strangers:
        return draw_plain if given.strangers == "plain" else draw_redisson
    return draw_tangle if given.tangles else draw


def _sum_up(report: Report, *, faults: bool) -> int:
    """Print the numbers; what faults met only where they were drawn for that."""
    if faults:
        _say(report.table())
    _say(report.summary())
    if report.findings:
        return 1
    if faults and (missing := report.missing()):
        _say("never met: " + ", ".join(f"{fault} × {what}" for fault, what in missing))
        return 3 if report.seeds >= 20_000 else 0
    return 0
