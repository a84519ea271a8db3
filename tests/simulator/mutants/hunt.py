"""All wrong protocols in one list, and the seeds that find them.

``python -m tests.simulator.mutants.hunt [WORD …]`` looks for a seed for each, or for those whose name has such a word, and
writes ``seeds.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulator import draw, run
from tests.simulator.mutants import of_cluster, of_once, of_one, of_several
from tests.simulator.mutants.of_one import Edit, edit, wrong
from tests.simulator.simulation import quiet
from tests.unit.scripts.test_fuzz import MUTANTS as FUZZED

__all__ = ["LONG", "MOST", "MUTANTS", "SEEDS", "Mutant", "hunt", "known"]

MOST = 600
"""Seeds until a mutant counts as missed."""

SEEDS = Path(__file__).parent / "seeds.json"
"""The seed that finds each."""

LONG = ("a far master has no more time than a near one", "a token that was taken back is used by the next")
"""Those whose runs take a second or more: somebody waits until the run is given up."""


class Mutant(NamedTuple):
    """A wrong protocol.

    Attributes:
        patches: Makes what is wrong about the client.
        edit: Makes a script wrong.
        faults: Which show it soonest; empty: any.
        families: What it is about.
        topologies: What the servers are to each other.
    """

    patches: Callable[[], list[Any]]
    edit: Edit | None
    faults: tuple[str, ...]
    families: tuple[str, ...]
    topologies: tuple[str, ...]


def _mutant(name: str, patches: Callable[[], list[Any]], change: Edit | None) -> Mutant:
    where = {
        **of_several.WHERE,
        **of_cluster.WHERE,
        **dict.fromkeys(of_once.SCRIPTS, (("once",), ("single",))),
    }
    families, topologies = where.get(name, (("mutex",), ("single",)))
    faults = {**of_one.FAULTS, **of_several.FAULTS, **of_cluster.FAULTS, **of_once.FAULTS}.get(name, ())
    return Mutant(patches, change, faults, families, topologies)


def _all() -> dict[str, Mutant]:
    clients = {**of_one.CLIENTS, **of_several.CLIENTS, **of_cluster.CLIENTS}
    scripts = {**of_one.SCRIPTS, **FUZZED, **of_several.SCRIPTS, **of_cluster.SCRIPTS, **of_once.SCRIPTS}
    unseen = {*of_one.UNSEEN, *of_several.UNSEEN}
    found = {name: _mutant(name, patches, None) for name, patches in clients.items()}
    found |= {
        name: _mutant(name, list, edit(*texts)) for name, texts in scripts.items() if name not in unseen
    }
    return found


MUTANTS: dict[str, Mutant] = _all()


@cache
def known() -> dict[str, int]:
    """The seeds that found them last."""
    seeds: dict[str, int] = json.loads(SEEDS.read_text())
    return seeds


def hunt(name: str, first: int | None = None) -> tuple[int, str]:
    """Look for a seed that finds a mutant, beginning with the one that did last time.

    Args:
        name: The mutant.
        first: A seed to try before all others.

    Returns:
        The seed and what was wrong; -1 and ``""`` if nothing was in ``MOST`` seeds.
    """
    mutant = MUTANTS[name]
    with quiet(), wrong(mutant.patches()):
        for seed in ([] if first is None else [first]) + list(range(MOST)):
            plan = draw(seed, mutant.faults, families=mutant.families, topologies=mutant.topologies)
            violation = run(plan, mutant.edit).violation
            if violation:
                return seed, violation
    return -1, ""


def main(words: list[str]) -> int:
    """Look for seeds; 1 if a mutant has none."""
    seeds = {name: seed for name, seed in known().items() if name in MUTANTS}
    for name in MUTANTS:
        if not words or any(word in name for word in words):
            seed, found = hunt(name, seeds.get(name))
            print(f"{seed:>5} {name}: {found[:100]}", flush=True)
            if found:
                seeds[name] = seed
    SEEDS.write_text(json.dumps(dict(sorted(seeds.items())), indent=1) + "\n")
    missing = [name for name in MUTANTS if name not in seeds]
    print(f"missing: {missing}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
