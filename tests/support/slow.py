"""What `make test` leaves to `make test-full` although its test runs in both: the cases that slow.txt names."""

from __future__ import annotations

from pathlib import Path

__all__ = ["slow_cases"]


def slow_cases() -> frozenset[str]:
    """Read the cases that take long, of tests of which another case runs always."""
    lines = Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))
