"""`python -m benchmarks`: run the comparison and print the report."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, placement, report, runner, store
from benchmarks.model import Scenario
from benchmarks.scenarios import SCENARIOS
from benchmarks.server import Server, version


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {scenario.name:4} {scenario.title}" for scenario in SCENARIOS.values())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure pawlock beside the locks people use today, in turns, on one throw-away server.",
        epilog=f"scenarios:\n{listed}\n\nexit code: 0 done; 1 a lock did not lock, or pawlock failed; "
        "2 a bar was missed and --gate was given; 130 interrupted: what came to an end until then is told and kept",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", choices=[*SCENARIOS, []], help="scenarios to run (default: all)")
    add("--rounds", type=int, default=0, help="rounds (default 7; 2 with --quick)")
    add("--quick", action="store_true", help="short turns and few rounds: a first look")
    add("--json", type=Path, metavar="FILE", help="write versions, machine and every sample; others are kept")
    add("--only", type=lambda text: text.split(","), metavar="KEY,…", help="only these participants")
    add(
        "--before",
        metavar="SRC",
        default="",
        help="measure each pawlock also as of this folder of sources, in the same rounds: the src of another checkout",
    )
    add("--gate", action="store_true", help="exit with 2 when a bar is missed")
    add(
        "--pin",
        action="store_true",
        help="fixed CPUs for everybody: a lone worker beside the server, several on the others (Linux)",
    )
    return parser.parse_args(argv)


def _chosen(scenario: Scenario, given: argparse.Namespace) -> Scenario:
    """A scenario as the command line wants it."""
    participants = [one for one in scenario.participants if not given.only or one.key in given.only]
    if given.before:
        ours = [one for one in participants if one.peer.startswith("pawlock")]
        participants += [replace(one, key=f"{one.key}@before", src=given.before) for one in ours]
    if given.quick:
        scenario = replace(scenario, slices=max(1, scenario.slices // 2), seconds=scenario.seconds / 2)
        participants = [one for one in participants if one.options.get("size", 0) <= 10_000]
    return replace(scenario, participants=tuple(participants), pinned=given.pin)


def _say(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks.

    Args:
        argv: Command line; None takes that of the process.

    Returns:
        The exit code (see `--help`).
    """
    given = _arguments(argv)
    rounds: int = given.rounds or (2 if given.quick else 7)
    chosen = [_chosen(SCENARIOS[name], given) for name in given.names or SCENARIOS]
    if given.pin:
        placement.server()  # says so where that is not possible
    # Whoever is told to end puts away what it has started, and keeps what it has measured.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    facts = machine.facts(chosen) | {"pinned": given.pin, "rounds": rounds}
    with Server() as server:
        facts["server"] = version(server)
    begin = time.monotonic()
    results = runner.run(chosen, rounds, _say)
    facts["seconds"] = round(time.monotonic() - begin, 1)
    _say("")
    print("\n".join(report.lines(chosen, results, facts)))
    if given.json is not None:
        store.write(given.json, chosen, results, facts)
    if results.violation or any(key.split()[1].startswith("pawlock") for key in results.failures):
        return 1
    if results.interrupted:
        return 130
    missed = any(not judged.ok for scenario in chosen for judged in report.verdicts(scenario, results))
    return 2 if given.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
