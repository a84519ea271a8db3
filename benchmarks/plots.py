"""Draws one picture for each scenario, as SVG and PNG: `python -m benchmarks.page --plots`.

Every file bears the digest of the numbers that it shows, so that a test can say whether it is of this run.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.model import Metric, Scenario
from benchmarks.report import label
from benchmarks.runner import Results
from benchmarks.stats import median

__all__ = ["FOLDER", "bars", "digest", "draw"]

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images" / "bench"
_OURS, _OTHERS, _FLOOR = "#00796b", "#9aa5b1", "#d8c7a0"
Row = tuple[str, str, float, float, float]


def shown(scenario: Scenario) -> Metric:
    """Return the metric that the picture of a scenario shows."""
    return next((metric for metric in scenario.metrics if metric.spread), scenario.metrics[0])


def bars(scenario: Scenario, results: Results) -> list[Row]:
    """Return what the picture shows: who, its peer, median, lowest and highest round."""
    metric = shown(scenario).key
    rows: list[Row] = []
    for participant in scenario.participants:
        values = [sample.get(metric, math.nan) for sample in results.of(scenario.name, participant.key)]
        values = [value for value in values if not math.isnan(value)]
        if values:
            middle = float(f"{median(values):.4g}")
            rows.append((label(participant), participant.peer, middle, min(values), max(values)))
    return rows


def digest(scenario: Scenario, results: Results) -> str:
    """Return a digest of the numbers that the picture shows."""
    text = json.dumps([scenario.name, shown(scenario).key, bars(scenario, results)])
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:32]


def draw(scenarios: Iterable[Scenario], results: Results, folder: Path = FOLDER) -> list[Path]:
    """Draw the pictures; return their paths. Needs matplotlib."""
    # Not a dependency of anything else: its types are not needed to check this file.
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "pawlock"
    matplotlib.rcParams["font.size"] = 9
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for scenario in scenarios:
        rows = bars(scenario, results)
        if not rows:
            continue
        figure, axes = pyplot.subplots(figsize=(7.2, 3.4 if scenario.x else 0.9 + 0.27 * len(rows)))
        (_lines if scenario.x else _bars)(axes, scenario, results, rows)
        axes.set_title(f"{scenario.name}: {scenario.title}", fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        mark = digest(scenario, results)
        for kind, extra in (("svg", {"Date": None}), ("png", {"Software": None})):
            path = folder / f"{scenario.name}.{kind}"
            figure.savefig(path, metadata={"Description": mark, **extra}, dpi=110)
            paths.append(path)
        pyplot.close(figure)
    return paths


def _bars(axes: Any, scenario: Scenario, _results: Results, rows: list[Row]) -> None:  # noqa: ANN401 - matplotlib
    metric = shown(scenario)
    upward = rows[::-1]
    colours = [
        _OURS
        if peer.startswith("pawlock")
        else _FLOOR
        if "floor" in peer or peer == "server-benchmark"
        else _OTHERS
        for _, peer, *_ in upward
    ]
    values = [row[2] for row in upward]
    errors = [[row[2] - row[3] for row in upward], [row[4] - row[2] for row in upward]]
    errors = [[max(0.0, error) for error in side] for side in errors]
    axes.barh([row[0] for row in upward], values, color=colours, height=0.7)
    axes.errorbar(
        values, range(len(upward)), xerr=errors, fmt="none", ecolor="#37474f", elinewidth=0.8, capsize=2
    )
    axes.set_xlabel(f"{metric.heading} (median; line: lowest to highest round)")
    if values and max(values) > 30 * max(1e-9, sorted(values)[len(values) // 2]):
        axes.set_xscale("log")


def _lines(axes: Any, scenario: Scenario, results: Results, rows: list[Row]) -> None:  # noqa: ANN401 - matplotlib
    metric = shown(scenario)
    del rows
    for number, (name, points) in enumerate(series(scenario, results).items()):
        colour = _OURS if name.startswith("pawlock") else _OTHERS
        style = ("-", "--", ":")[number % 3]
        axes.plot(*zip(*points, strict=True), style, marker="o", color=colour, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(scenario.x)
    axes.set_ylabel(metric.heading)
    axes.legend(frameon=False, fontsize=8)


def series(scenario: Scenario, results: Results) -> dict[str, list[tuple[float, float]]]:
    """Return the lines of a picture whose axis counts something: who, and its points."""
    found: dict[str, list[tuple[float, float]]] = {}
    for participant in scenario.participants:
        values = [
            sample.get(shown(scenario).key, math.nan) for sample in results.of(scenario.name, participant.key)
        ]
        value, size = median(values), participant.options.get("size", 0)
        if not math.isnan(value) and size:
            name = label(participant).replace(f"{size:,.0f}".replace(",", " "), "").replace("(, ", "(")
            found.setdefault(name.replace(" ()", ""), []).append((size, value))
    return found
