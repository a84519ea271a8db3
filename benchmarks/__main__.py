"""`python -m benchmarks`: run the comparison and print the report."""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, placement, report, runner, store
from benchmarks.model import Scenario
from benchmarks.scenarios import SCENARIOS
from benchmarks.server import Server, version
from benchmarks.spinner import awake

QUICK_ROUNDS = 2


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {scenario.name:4} {scenario.title}" for scenario in SCENARIOS.values())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure pawlock beside the locks people use today, in turns, on one throw-away server.",
        epilog=f"scenarios:\n{listed}\n\nexit code: 0 done; 1 a lock did not lock, or pawlock failed; "
        "2 a bar was missed and --gate was given; 130 interrupted: what came to an end until then is told and kept",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios to run (default: all)")
    parser.add_argument("--rounds", type=int, help=f"rounds (default 7; {QUICK_ROUNDS} with --quick)")
    parser.add_argument("--quick", action="store_true", help="short turns and few rounds: a first look")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write versions, machine and every sample; others are kept"
    )
    parser.add_argument(
        "--limit", type=float, default=math.inf, metavar="SECONDS", help="begin no round that would end later"
    )
    parser.add_argument(
        "--only",
        type=lambda text: frozenset(text.split(",")),
        metavar="KEY,…",
        help="only these participants",
    )
    parser.add_argument(
        "--add", action="store_true", help="with --json: behind the rounds that it has already"
    )
    parser.add_argument(
        "--gate", action="store_true", help="exit with 2 when a bar that must be met is missed"
    )
    parser.add_argument(
        "--steady", action="store_true", help="keep all CPUs awake meanwhile (Linux; costs power)"
    )
    parser.add_argument(
        "--pin",
        action="store_true",
        help="fixed CPUs for everybody: a lone worker beside the server, several on the others (Linux)",
    )
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)} (known: {', '.join(SCENARIOS)})")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


def _with(scenario: Scenario, keys: frozenset[str]) -> Scenario:
    return replace(scenario, participants=tuple(p for p in scenario.participants if p.key in keys))


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
    arguments = _arguments(argv)
    rounds: int = arguments.rounds or (QUICK_ROUNDS if arguments.quick else 7)
    chosen = [SCENARIOS[name] for name in arguments.names] or list(SCENARIOS.values())
    if arguments.quick:
        chosen = [runner.quick(scenario) for scenario in chosen]
    if arguments.only:
        chosen = [_with(scenario, arguments.only) for scenario in chosen]
    if arguments.pin:
        placement.server()  # says so where that is not possible
        chosen = [replace(scenario, pinned=True) for scenario in chosen]
    # Whoever is told to end puts away what it has started, and keeps what it has measured.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    facts = machine.facts(chosen)
    with Server() as server:
        facts["server"] = version(server)
    facts["steady"] = arguments.steady
    facts["pinned"] = arguments.pin
    begin = time.monotonic()
    with awake() if arguments.steady else contextlib.nullcontext():
        results = runner.run(chosen, rounds, _say, arguments.limit)
    ran = (len(samples) for one in results.samples.values() for samples in one.values())
    rounds = max(ran, default=0)
    facts["seconds"] = round(time.monotonic() - begin, 1)
    _say("")
    print("\n".join(report.lines(chosen, results, facts, rounds)))
    if arguments.json is not None:
        store.write(arguments.json, chosen, results, facts, add=arguments.add)
    if results.violation or any(key.split()[1].startswith("pawlock") for key in results.failures):
        return 1
    if results.interrupted:
        return 130
    missed = any(
        judged["binding"] and not judged["ok"]
        for scenario in chosen
        for judged in report.verdicts(scenario, results)
    )
    return 2 if arguments.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
