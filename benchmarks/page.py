"""`python -m benchmarks.page`: writes the tables of the page on performance from the stored run, and draws its charts.

The page is written by hand but for what stands between `<!-- bench NAME -->` and `<!-- /bench -->`.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks import report, store
from benchmarks.events import median
from benchmarks.model import Scenario
from benchmarks.runner import Results
from benchmarks.scenarios import SCENARIOS

__all__ = ["PAGE", "main", "render"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "concepts" / "how-fast.md"
CHARTS = ROOT / "docs" / "images" / "bench"
_BLOCK = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)
_OURS, _OTHERS, _FLOOR = "#00796b", "#9aa5b1", "#d8c7a0"
_SHOWN = {
    "P1": ("pairs_per_s", "cpu_us_per_pair", "server_us_per_pair", "acquire_p99_us"),
    "P4": (
        "handoffs_per_s",
        "acquisitions_per_s",
        "jain",
        "commands_per_grant",
        "wait_p50_ms",
        "wait_p99_ms",
    ),
}
"""The columns that the page has of each table. The report of a run (`python -m benchmarks`) has them all."""
_CARRIED = (
    ("P1", "pawlock", "server_us_per_pair", "acquire and release, one at a time"),
    ("P3", "pawlock", "server_us_per_pair", "acquire and release, many in one write"),
    ("P4", "pawlock-strict", "server_us_per_pair", "hand-offs in strict order"),
    ("P4", "pawlock", "server_us_per_pair", "grants with local hand-off"),
    ("P9", "pawlock-100000", "server_us_per_renewal", "leases held, TTL 30 s, renewed by one client"),
)
"""What one core of a server carries: where it was measured, and what it is."""


def render(text: str, document: dict[str, Any]) -> str:
    """Return the page with the blocks that a stored run gives."""
    results = store.results_of(document)

    def block(found: re.Match[str]) -> str:
        name = found[2]
        if name == "facts":
            lines = _facts(document)
        elif name == "capacity":
            lines = _capacity(results)
        else:
            lines = _table(SCENARIOS[name], results)
        return found[1] + "\n".join(lines) + "\n" + found[3]

    return _BLOCK.sub(block, text)


def _facts(document: dict[str, Any]) -> list[str]:
    runs = [entry["facts"] for entry in document.values()]
    lines = ["| property | value |", "|---|---|"]
    for heading, key in (("machine", "cpu"), ("CPUs", "cpus"), ("system", "system"), ("Python", "python"),
                         ("server", "server"), ("revision", "revision")):  # fmt: skip
        lines.append(f"| {heading} | {', '.join(sorted({str(run[key]) for run in runs}))} |")
    versions = sorted({f"{name} {version}" for run in runs for name, version in run["versions"].items()})
    return [*lines, f"| versions | {', '.join(versions)} |"]


def _capacity(results: Results) -> list[str]:
    lines = ["| what | server CPU us each | one core carries |", "|---|---:|---:|"]
    for name, who, metric, what in _CARRIED:
        cost = median([sample[metric] for sample in results.of(name, who)])
        # A lease is renewed once in the ten seconds that are measured, whatever else is counted once.
        carried = f"{1e7 / cost:,.0f}" if name == "P9" else f"{1e6 / cost:,.0f} a second"
        lines.append(f"| {what} | {cost:.1f} | {carried} |")
    return lines


def _table(scenario: Scenario, results: Results) -> list[str]:
    shown = [
        0,
        *(n for n, metric in enumerate(scenario.metrics, start=1) if metric.key in _SHOWN[scenario.name]),
    ]
    head, *rows = ([row[n] for n in shown] for row in report.table(scenario, results, spread=False))
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return [*lines, *(["", *(f"- {note}" for note in scenario.notes)] if scenario.notes else [])]


def draw(scenario: Scenario, results: Results) -> None:
    """Draw the chart of a scenario: the first metric that spreads. Needs matplotlib."""
    # Not a dependency of anything else: its types are not needed to check this file.
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "pawlock", "font.size": 9}
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    metric = next(metric for metric in scenario.metrics if metric.spread)
    rows: list[tuple[str, str, float, float, float]] = []
    for participant in reversed(scenario.participants):
        values = [sample.get(metric.key, math.nan) for sample in results.of(scenario.name, participant.key)]
        peer, middle = participant.peer, median(values)
        if not math.isnan(middle):
            colour = _OURS if peer.startswith("pawlock") else _FLOOR if peer.startswith("floor") else _OTHERS
            rows.append((report.label(participant), colour, middle, min(values), max(values)))
    names, colours, middles, lowest, highest = zip(*rows, strict=True)
    figure, axes = pyplot.subplots(figsize=(7.2, 0.9 + 0.27 * len(rows)))
    axes.barh(names, middles, color=colours, height=0.7)
    errors = [[m - low for m, low in zip(middles, lowest, strict=True)],
              [high - m for m, high in zip(middles, highest, strict=True)]]  # fmt: skip
    axes.errorbar(
        middles, range(len(rows)), xerr=errors, fmt="none", ecolor="#37474f", elinewidth=0.8, capsize=2
    )
    axes.set_xlabel(f"{metric.heading} (median; line: lowest to highest round)")
    if max(middles) > 30 * max(1e-9, median(middles)):
        axes.set_xscale("log")
    axes.set_title(f"{scenario.name}: {scenario.title}", fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(CHARTS / f"{scenario.name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    """Write the tables of the page and the charts that it shows."""
    document = store.load()
    text = render(PAGE.read_text(), document)
    PAGE.write_text(text)
    for name in re.findall(r"images/bench/(\w+)\.svg", text):
        draw(SCENARIOS[name], store.results_of(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
