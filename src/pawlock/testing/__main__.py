"""``python -m pawlock.testing VERB``: tools for those who test locks."""

from __future__ import annotations

import sys
from importlib import import_module

VERBS = {
    "conformance": "tests.conformance.suite",
    "simulate": "tests.simulator.command",
}
"""What each verb runs: the ``main`` of a module."""


def main() -> int:
    """Run one verb; 2 if there is none of that name."""
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb not in VERBS:
        print(f"usage: python -m pawlock.testing {'|'.join(VERBS)} …", file=sys.stderr)  # noqa: T201 - a command
        return 2
    return int(import_module(VERBS[verb]).main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
