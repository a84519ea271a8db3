"""Prints what was measured, and says of every promise whether it was kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.model import Bar, Metric, Participant, Sample, Scenario
from benchmarks.peers import PEERS
from benchmarks.runner import Results
from benchmarks.stats import median

_NAN = float("nan")


_SAID = {
    "handover": "strict order",
    "uvloop": "uvloop",
    "best": "best settings",
    "renewing": "auto_renewal",
    "threads": "threads",
    "fair": "fair lock",
    "ttl": "",
    "workers": "",
    "processes": "",
}


def label(participant: Participant) -> str:
    """Return what the report calls a participant."""
    words = [] if not participant.workload.endswith("-tasks") else ["asyncio"]
    for key, value in participant.options.items():
        if key == "size":
            words.append(f"{value:,.0f}".replace(",", " "))
        elif key == "delay_ms":
            words.append(f"{value:g} ms")
        elif _SAID.get(key) != "":
            words.append(_SAID.get(key, f"{key}={value:g}"))
    name = PEERS[participant.peer].label
    return f"{name} ({', '.join(words)})" if words else name


def table(scenario: Scenario, results: Results) -> list[str]:
    """Return the lines of a scenario's table: medians over the rounds, with their ranges."""
    rows = [["", *(metric.heading for metric in scenario.metrics)]]
    for participant in scenario.participants:
        samples = results.of(scenario.name, participant.key)
        if samples:
            rows.append([label(participant), *(_cell(metric, samples) for metric in scenario.metrics)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cell(metric: Metric, samples: Sequence[Sample]) -> str:
    values = [sample.get(metric.key, _NAN) for sample in samples]
    text = _number(median(values), metric.decimals)
    if metric.spread and len(values) > 1:
        text += f" ({_number(min(values), metric.decimals)}–{_number(max(values), metric.decimals)})"
    return text


def _number(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}".replace(",", " ")


def verdict(bar: Bar, scenario: Scenario, results: Results) -> dict[str, Any] | None:
    """Judge a bar by the ratio of medians; None when a side of it was not measured."""
    subject = [sample[bar.metric] for sample in results.of(scenario.name, bar.subject)]
    against = [1.0] if bar.against is None else _compared(bar, scenario, results)
    if not subject or not against:
        return None
    base = median(against)
    value = median(subject) / base if base else _NAN
    per_round = [
        a / b for a, b in zip(subject, against * (len(subject) if not bar.against else 1), strict=False) if b
    ]

    def reaches(mark: float) -> bool:
        return value >= mark if bar.better == "higher" else value <= mark

    return {
        "metric": bar.metric,
        "subject": bar.subject,
        "against": bar.against,
        "value": value,
        "lowest": min(per_round, default=_NAN),
        "highest": max(per_round, default=_NAN),
        "must": bar.must,
        "goal": bar.goal,
        "ok": reaches(bar.must),
        "goal_ok": None if bar.goal is None else reaches(bar.goal),
        "better": bar.better,
        "binding": bar.binding,
    }


def _compared(bar: Bar, scenario: Scenario, results: Results) -> list[float]:
    where, _, who = f"{bar.against}".rpartition(":")
    return [sample[bar.metric] for sample in results.of(where or scenario.name, who)]


def verdicts(scenario: Scenario, results: Results) -> list[dict[str, Any]]:
    """Judge every bar of a scenario that can be judged."""
    found = (verdict(bar, scenario, results) for bar in scenario.bars)
    return [judged for judged in found if judged is not None]


def what(scenario: Scenario, judged: dict[str, Any]) -> str:
    """Say what a bar is about."""
    labels = {participant.key: label(participant) for participant in scenario.participants}
    headings = {metric.key: metric.heading for metric in scenario.metrics}
    said = f"{headings[judged['metric']]}: {labels[judged['subject']]}"
    if judged["against"]:
        said += f" / {labels.get(judged['against'], judged['against'])}"
    return said


def verdict_line(scenario: Scenario, judged: dict[str, Any]) -> str:
    """Return one judged bar as a line of the report."""
    unit = "×" if judged["against"] else ""
    line = f"{what(scenario, judged)} = {judged['value']:.2f}{unit} ({judged['lowest']:.2f}–{judged['highest']:.2f})"
    word = "must" if judged["binding"] else "guide"
    line += f"   {word} {judged['must']:g}{unit} {_word(judged['ok'])}"
    if judged["goal"] is not None:
        line += f", goal {judged['goal']:g}{unit} {_word(judged['goal_ok'])}"
    return line


def _word(ok: bool) -> str:  # noqa: FBT001 - one private word
    return "ok" if ok else "SHORT"


def lines(scenarios: Iterable[Scenario], results: Results, facts: dict[str, Any], rounds: int) -> list[str]:
    """Return the whole report."""
    out = [
        f"{facts['server']} · {facts['python']} · {facts['cpus']} × {facts['cpu']} · {facts['system']}",
        " · ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        f"revision {facts['revision']} · load before {facts['load'][0]:.2f} · {facts['seconds']:.0f} s",
        f"medians of {rounds} rounds (lowest–highest round)"
        + (", CPUs kept awake" if facts["steady"] else "")
        + (", client and server on fixed CPUs" if facts["pinned"] else ""),
    ]
    for scenario in scenarios:
        out += ["", f"{scenario.name}  {scenario.title}", *table(scenario, results)]
        out += [f"  {note}" for note in scenario.notes]
        out += [f"  » {verdict_line(scenario, judged)}" for judged in verdicts(scenario, results)]
    out += [""]
    out += [f"left out: {reason}" for reason in results.left_out.values()]
    out += [f"FAILED {key}: {reason}" for key, reason in results.failures.items()]
    if results.violation:
        out.append(f"VIOLATION {results.violation}")
    return out
