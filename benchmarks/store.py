"""What was measured, as a file: written by a run, added to by another one, read by whoever draws or writes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.model import Sample, Scenario
from benchmarks.runner import Results

__all__ = ["LATEST", "facts_of", "load", "results_of", "write"]

FORMAT = 2
LATEST = Path(__file__).with_name("results") / "latest.json"
_DIGITS = 5


def write(
    path: Path, scenarios: Iterable[Scenario], results: Results, facts: Mapping[str, Any], *, add: bool
) -> None:
    """Write the samples of a run.

    Args:
        path: The file. Scenarios that it has and this run has not are kept.
        scenarios: What was run.
        results: What was measured.
        facts: Where and when.
        add: Put the rounds behind those that the file has of the same scenario; False: in their place.
    """
    document: dict[str, Any] = {"format": FORMAT, "scenarios": {}}
    if path.exists():
        document = load(path)
    for scenario in scenarios:
        had = document["scenarios"].get(scenario.name) if add else None
        entry: dict[str, Any] = had or {"runs": [], "samples": {}, "left_out": {}, "failures": {}}
        run = dict(facts)
        entry["runs"].append(run)
        for key, samples in results.samples.get(scenario.name, {}).items():
            entry["samples"].setdefault(key, []).extend(_short(sample) for sample in samples)
        peers = {participant.peer for participant in scenario.participants}
        entry["left_out"] |= {key: why for key, why in results.left_out.items() if key in peers}
        entry["failures"] |= {
            key: why for key, why in results.failures.items() if key.split()[0] == scenario.name
        }
        document["scenarios"][scenario.name] = entry
    document["scenarios"] = dict(sorted(document["scenarios"].items()))
    document["violation"] = results.violation or document.get("violation")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(document, indent=None, separators=(",", ":")).replace('"samples"', '\n"samples"') + "\n"
    )


def _short(sample: Sample) -> dict[str, float | None]:
    # Strict JSON knows no NaN.
    return {
        key: None if math.isnan(value) or math.isinf(value) else float(f"{value:.{_DIGITS}g}")
        for key, value in sample.items()
    }


def load(path: Path = LATEST) -> dict[str, Any]:
    """Read a file that `write` made."""
    document: dict[str, Any] = json.loads(path.read_text())
    if document.get("format") != FORMAT:
        raise ValueError(f"{path.name} is of format {document.get('format')}, not {FORMAT}: measure anew")
    return document


def results_of(document: Mapping[str, Any]) -> Results:
    """Return the samples of a file as a run would."""
    results = Results(violation=document.get("violation"))
    for name, entry in document["scenarios"].items():
        results.samples[name] = {
            key: [
                {metric: math.nan if value is None else value for metric, value in sample.items()}
                for sample in samples
            ]
            for key, samples in entry["samples"].items()
        }
        results.left_out |= entry["left_out"]
        results.failures |= entry["failures"]
    return results


def facts_of(document: Mapping[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the facts of the runs of some scenarios, without doubles."""
    found: list[dict[str, Any]] = []
    for name in names:
        for run in document["scenarios"].get(name, {}).get("runs", ()):
            if run not in found:
                found.append(run)
    return found
