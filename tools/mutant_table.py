"""Look for the seed that finds each wrong protocol, and write it down, for the tests and for the documentation.

`python tools/mutant_table.py` writes tests/nightly/simulation/seeds.json and docs/reference/wrong-protocols.md; a test holds
both to the mutants that there are. With words behind it, it looks only for mutants whose name has one of them.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.nightly.simulation import mutants, mutants_several  # noqa: E402
from tests.nightly.simulation.catalog import ELSEWHERE, HOLES, PUBLISHED  # noqa: E402 - after the path
from tests.nightly.simulation.hunt import MUTANTS, SEEDS, hunt  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "wrong-protocols.md"

HEAD = """# Wrong protocols that are found

Protocols that are wrong on purpose, and the seed with which the [simulator](../concepts/simulation.md) finds each: for
most of them one of the first. Written by `tools/mutant_table.py`; `tests/nightly/simulation/test_mutants.py` runs them all.

## Designs that others had or have

| design | mutant | found by seed |
|---|---|---|
"""

UNSEEN = """
## What the simulator does not see

Single wrong lines of scripts that pawlock's own client never gets to feel, and designs that need a real process. Tests of
their own find them.

| mutant | why it is not seen here |
|---|---|
"""


def _row(known: str, name: str, seeds: dict[str, int]) -> str:
    if name:
        return f"| {known} | {name} | {seeds[name]} |"
    path, _, test = ELSEWHERE[known].partition("::")
    return f"| {known} | a forked process; `{test}` in `{path}` | – |"


def _page(seeds: dict[str, int]) -> str:
    lines = [_row(known, name, seeds) for known, name in PUBLISHED.items()]
    text = (
        HEAD
        + "\n".join(lines)
        + "\n\n## Holes of the first draft\n\n| hole | mutant | found by seed |\n|---|---|---|\n"
    )
    text += "\n".join(_row(known, name, seeds) for known, name in HOLES.items())
    text += f"\n\n## All {len(seeds)}\n\n| mutant | found by seed |\n|---|---|\n"
    text += "\n".join(f"| {name} | {seed} |" for name, seed in sorted(seeds.items())) + "\n"
    unseen = {**mutants.UNSEEN, **mutants_several.UNSEEN}
    return text + UNSEEN + "\n".join(f"| {name} | {why} |" for name, why in sorted(unseen.items())) + "\n"


def main() -> int:
    """Hunt and write."""
    seeds: dict[str, int] = json.loads(SEEDS.read_text()) if SEEDS.exists() else {}
    seeds = {name: seed for name, seed in seeds.items() if name in MUTANTS}
    words = sys.argv[1:]
    for name in MUTANTS:
        if words and not any(word in name for word in words):
            continue
        seed, found = hunt(name, seeds.get(name))
        sys.stdout.write(f"{seed:>5} {name}: {found[:100]}\n")
        sys.stdout.flush()
        if seed >= 0:
            seeds[name] = seed
    SEEDS.write_text(json.dumps(dict(sorted(seeds.items())), indent=1) + "\n")
    missing = [name for name in MUTANTS if name not in seeds]
    if not missing:
        PAGE.write_text(_page(seeds))
    sys.stdout.write(f"missing: {missing}\n")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
