"""Prints what was measured, and says of every promise whether it was kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.events import median
from benchmarks.model import Bar, Metric, Participant, Sample, Scenario
from benchmarks.peers import PEERS
from benchmarks.runner import Results

_SAID = {"handover": "strict order", "best": "best settings", "fair": "fair lock", "anew": "made anew"}


def label(participant: Participant) -> str:
    """Return what the report calls a participant."""
    words = ["asyncio"] if participant.tasks else []
    for key, value in participant.options.items():
        words.append(f"{value:,.0f}" if key == "size" else _SAID.get(key, key))
    words += ["before"] if participant.src else []
    name = PEERS[participant.peer].label
    return f"{name} ({', '.join(words)})" if words else name


def number(value: float, decimals: int) -> str:
    """Return a number as people read it."""
    return "–" if math.isnan(value) else f"{value:,.{decimals}f}".replace(",", " ")


def _cell(metric: Metric, samples: Sequence[Sample], *, spread: bool) -> str:
    values = [sample.get(metric.key, math.nan) for sample in samples]
    text = number(median(values), metric.decimals)
    if spread and metric.spread and len(values) > 1:
        text += f" ({number(min(values), metric.decimals)}–{number(max(values), metric.decimals)})"
    return text


def table(scenario: Scenario, results: Results, *, spread: bool = True) -> list[list[str]]:
    """Return the medians of a scenario: a row of headings, and one for each participant that was measured."""
    rows = [["", *(metric.heading for metric in scenario.metrics)]]
    for participant in scenario.participants:
        if samples := results.of(scenario.name, participant.key):
            cells = [_cell(metric, samples, spread=spread) for metric in scenario.metrics]
            rows.append([label(participant), *cells])
    return rows


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar and what was measured."""

    bar: Bar
    value: float

    @property
    def ok(self) -> bool:
        """Whether it is reached."""
        return self.value >= self.bar.must if self.bar.better == "higher" else self.value <= self.bar.must


def verdicts(scenario: Scenario, results: Results) -> list[Verdict]:
    """Judge, by the ratio of medians, every bar of a scenario whose sides were measured."""
    found: list[Verdict] = []
    for bar in scenario.bars:
        where, _, who = bar.against.rpartition(":")
        subject = [sample[bar.metric] for sample in results.of(scenario.name, bar.subject)]
        against = [sample[bar.metric] for sample in results.of(where or scenario.name, who)] if who else [1.0]
        if subject and against and median(against):
            found.append(Verdict(bar, median(subject) / median(against)))
    return found


def said(scenario: Scenario, verdict: Verdict) -> str:
    """Return a judged bar as a line."""
    bar = verdict.bar
    labels = {participant.key: label(participant) for participant in scenario.participants}
    heading = next(metric.heading for metric in scenario.metrics if metric.key == bar.metric)
    against = f" / {labels.get(bar.against, bar.against)}" if bar.against else ""
    sign, unit = ("≥" if bar.better == "higher" else "≤"), ("×" if bar.against else "")
    return f"{heading}: {labels[bar.subject]}{against} = {verdict.value:.2f}{unit}, {sign} {bar.must:g}{unit} wanted"


def lines(scenarios: Iterable[Scenario], results: Results, facts: dict[str, Any]) -> list[str]:
    """Return the whole report."""
    out = [
        f"{facts['server']} · {facts['python']} · {facts['cpus']} × {facts['cpu']} · {facts['system']}",
        " · ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        f"revision {facts['revision']} · load before {facts['load'][0]:.2f} · {facts['seconds']:.0f} s",
        f"medians of {facts['rounds']} rounds (lowest–highest round)"
        + (", client and server on fixed CPUs" if facts["pinned"] else ""),
    ]
    for scenario in scenarios:
        rows = table(scenario, results)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        out += ["", f"{scenario.name}  {scenario.title}"]
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            out.append("  " + "  ".join([row[0].ljust(widths[0]), *cells]))
        out += [f"  {note}" for note in scenario.notes]
        out += [
            f"  » {'ok   ' if one.ok else 'SHORT'} {said(scenario, one)}"
            for one in verdicts(scenario, results)
        ]
    out += ["", *(f"left out: {reason}" for reason in results.left_out.values())]
    out += [f"FAILED {key}: {reason}" for key, reason in results.failures.items()]
    return [*out, *([f"VIOLATION {results.violation}"] if results.violation else [])]
