"""What was measured, as a file: written by a run, read by whoever draws or writes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.model import Sample, Scenario
from benchmarks.runner import Results

__all__ = ["LATEST", "load", "results_of", "write"]

LATEST = Path(__file__).with_name("results") / "latest.json"


def write(path: Path, scenarios: Iterable[Scenario], results: Results, facts: Mapping[str, Any]) -> None:
    """Write the samples of a run; scenarios that the file has and this run has not are kept.

    Args:
        path: The file.
        scenarios: What was run.
        results: What was measured.
        facts: Where and when.
    """
    document: dict[str, Any] = load(path) if path.exists() else {}
    for scenario in scenarios:
        peers = {participant.peer for participant in scenario.participants}
        found = results.samples.get(scenario.name, {})
        document[scenario.name] = {
            "facts": dict(facts),
            "left_out": {key: why for key, why in results.left_out.items() if key in peers},
            "failures": {k: why for k, why in results.failures.items() if k.split()[0] == scenario.name},
            "samples": {key: [_short(sample) for sample in samples] for key, samples in found.items()},
        }
    text = json.dumps(dict(sorted(document.items())), separators=(",", ":"))
    path.write_text(text.replace('"samples"', '\n"samples"') + "\n")


def _short(sample: Sample) -> dict[str, float | None]:
    # Strict JSON knows no NaN.
    return {key: float(f"{value:.5g}") if math.isfinite(value) else None for key, value in sample.items()}


def load(path: Path = LATEST) -> dict[str, Any]:
    """Read a file that `write` made."""
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def results_of(document: Mapping[str, Any]) -> Results:
    """Return the samples of a file as a run would."""
    results = Results()
    for name, entry in document.items():
        results.samples[name] = {
            key: [{k: math.nan if v is None else v for k, v in sample.items()} for sample in samples]
            for key, samples in entry["samples"].items()
        }
        results.left_out |= entry["left_out"]
        results.failures |= entry["failures"]
    return results
