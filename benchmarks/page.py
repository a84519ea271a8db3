"""`python -m benchmarks.page`: writes the page "Benchmarks" from the stored run.

Every figure on the page comes from `results/latest.json`: the text lies in `page.md` and has none of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import guard, plots, report, store
from benchmarks.model import Scenario
from benchmarks.runner import Results
from benchmarks.scenarios import SCENARIOS
from benchmarks.stats import median

__all__ = ["PAGE", "main", "render"]

TEMPLATE = Path(__file__).with_name("page.md")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "concepts" / "how-fast.md"
_PLACE = re.compile(r"\{\{([^{}]+)\}\}")


def render(document: Mapping[str, Any]) -> str:
    """Return the page for a stored run."""
    results = store.results_of(document)
    measured = [scenario for name, scenario in SCENARIOS.items() if name in document["scenarios"]]

    whole: dict[str, Callable[[], str]] = {
        "bars": lambda: _bars(measured, results),
        "facts": lambda: _facts(document),
        "absent": lambda: _absent(results),
    }
    parts: dict[str, Callable[..., str]] = {"value": _value, "ratio": _ratio}

    def fill(found: re.Match[str]) -> str:
        what, *words = found[1].split()
        if what in whole:
            return whole[what]()
        if what in parts:
            return parts[what](results, *words)
        if what == "cost":
            return _cost(" ".join(words[:-1]), words[-1])
        scenario = SCENARIOS[what]
        return _section(scenario, results) if scenario in measured else "_Not measured in this run._"

    text = _PLACE.sub(fill, TEMPLATE.read_text())
    origin = (
        f"<!-- Made by `python -m benchmarks.page` from {store.LATEST.name}: change benchmarks/page.md. -->"
    )
    return f"{origin}\n\n{text}"


def _number(value: float, decimals: int) -> str:
    return "–" if math.isnan(value) else f"{value:,.{decimals}f}".replace(",", " ")


def _of(results: Results, scenario: str, key: str, metric: str) -> float:
    return median([sample.get(metric, math.nan) for sample in results.of(scenario, key)])


def _value(results: Results, scenario: str, key: str, metric: str, decimals: str = "0") -> str:
    return _number(_of(results, scenario, key, metric), int(decimals))


def _ratio(results: Results, scenario: str, metric: str, key: str, against: str) -> str:
    base = _of(results, scenario, against, metric)
    return _number(_of(results, scenario, key, metric) / base if base else math.nan, 2)


def _cost(path: str, key: str) -> str:
    return _number(json.loads(guard.BASELINE.read_text())["paths"][path][key], 0)


def _facts(document: Mapping[str, Any]) -> str:
    runs = store.facts_of(document, list(document["scenarios"]))
    lines = ["| property | value |", "|---|---|"]
    versions: dict[str, str] = {}
    for run in runs:
        versions |= run["versions"]
    for heading, key in (
        ("machine", "cpu"),
        ("system", "system"),
        ("Python", "python"),
        ("server", "server"),
    ):
        lines.append(f"| {heading} | {', '.join(sorted({str(run[key]) for run in runs}))} |")
    lines.append(f"| CPUs | {', '.join(sorted({str(run['cpus']) for run in runs}))} |")
    pinned = (
        "client and server on fixed CPUs"
        if all(run["pinned"] for run in runs)
        else "chosen by the kernel; fixed CPUs in P1c, P2c and P4c"
    )
    lines.append(f"| placement | {pinned} |")
    lines.append(f"| revision | {', '.join(sorted({str(run['revision']) for run in runs}))} |")
    lines.append(
        f"| versions | {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))} |"
    )
    return "\n".join(lines)


def _absent(results: Results) -> str:
    lines = [f"- left out: {why}" for why in results.left_out.values()]
    lines += [f"- did not finish: {key} ({why.splitlines()[0]})" for key, why in results.failures.items()]
    return "\n".join(lines) or "All participants took part and finished."


def _judged(scenarios: Iterable[Scenario], results: Results) -> list[tuple[Scenario, dict[str, Any]]]:
    return [(scenario, bar) for scenario in scenarios for bar in report.verdicts(scenario, results)]


def _bars(scenarios: Iterable[Scenario], results: Results) -> str:
    lines = ["| scenario | what | required | goal | measured | result |", "|---|---|---:|---:|---:|---|"]
    met = missed = 0
    for scenario, bar in _judged(scenarios, results):
        unit = " ×" if bar["against"] else ""
        sign = "≥" if bar["better"] == "higher" else "≤"
        goal = "" if bar["goal"] is None else f"{bar['goal']:g}{unit}"
        verdict = "goal met" if bar["goal_ok"] else "met" if bar["ok"] else "**missed**"
        met, missed = met + bool(bar["ok"]), missed + (not bar["ok"])
        what = report.what(scenario, bar)
        lines.append(
            f"| {scenario.name} | {what} | {sign} {bar['must']:g}{unit} | {goal} "
            f"| {_number(bar['value'], 2 if bar['value'] < 1000 else 0)}{unit} | {verdict} |"
        )
    return "\n".join([f"{met} of {met + missed} required values are reached.", "", *lines])


def _section(scenario: Scenario, results: Results) -> str:
    lines = [f"### {scenario.name}: {scenario.title}", ""]
    lines += [f"![{scenario.name}: {scenario.title}](../images/bench/{scenario.name}.svg)", ""]
    lines += ["| participant | " + " | ".join(metric.heading for metric in scenario.metrics) + " |"]
    lines += ["|---|" + "---:|" * len(scenario.metrics)]
    for participant in scenario.participants:
        if not results.of(scenario.name, participant.key):
            continue
        cells = [
            _number(_of(results, scenario.name, participant.key, metric.key), metric.decimals)
            for metric in scenario.metrics
        ]
        lines.append(f"| {report.label(participant)} | " + " | ".join(cells) + " |")
    rounds = max((len(samples) for samples in results.samples.get(scenario.name, {}).values()), default=0)
    lines += ["", f"Medians of {rounds} round{'s' if rounds != 1 else ''}.", ""]
    lines += [f"- {note}" for note in scenario.notes]
    picture = f"[PNG](../images/bench/{scenario.name}.png)"
    return "\n".join([*lines, "", f"This chart as {picture}."])


def main(argv: list[str] | None = None) -> int:
    """Write the page, and with `--plots` the pictures.

    Args:
        argv: Command line; None takes that of the process.

    Returns:
        0; 1 with `--check` if the page is not what the stored run gives.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--plots", action="store_true", help="draw the pictures, too (needs matplotlib)")
    parser.add_argument(
        "--check", action="store_true", help="write nothing, and say whether the page is up to date"
    )
    arguments = parser.parse_args(argv)
    document = store.load()
    text = render(document)
    if arguments.check:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    if arguments.plots:
        plots.draw(SCENARIOS.values(), store.results_of(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
