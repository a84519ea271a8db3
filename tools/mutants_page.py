"""The page on mutation testing: how many mutants were detected, and why the others were not."""

from collections.abc import Mapping, Sequence

from tools.mutants_py import Mutant
from tools.mutants_why import OPEN, SAME

HEAD = """# Mutation testing

Mutation testing measures how many defects the tests detect. Each mutant is pawlock with one change: a comparison, an
operator, a number, a key, a return, the order of two statements, or a statement removed. The simulator and every test
that reaches the changed line run against it, fastest first, until one fails. A seed draws the sample from the names of
all mutants, so it is the same everywhere:

```sh
python tools/mutate.py reach tests/unit tests/unit/scripts …       # once: which test reaches which line
python tools/mutate.py core --sample {core} --seed {seed}     # src/pawlock/core
python tools/mutate.py lua --sample {lua} --seed {seed}      # the scripts
```

Code that decides nothing is not mutated: docstrings, annotations, decorators, error texts, calls that only log or warn,
`__repr__` and `__str__`. A failing test counts only if it passes without the mutant, and a hang only if nothing hangs
without it. Tests that read or change the source text, and tests that take longer than a minute, are excluded; they
might detect a mutant that survives here. A mutant counts as detected even if the test was written for it.

For a sample that no test was written for, see the first runs. The sample below began with 75 of 149 in the core and 105
of 150 in the scripts, by the fastest tests alone. Another one of the core, drawn after its rebuild (`--seed 18`), began
with 110 of 150: 73%, with equivalent mutants counted as missed and without the slow tests. The lists below are from
before the rebuild.

A mutant that behaves exactly like pawlock is *equivalent*: it counts neither as detected nor as missed, and the reason is
given. `python tools/mutate.py report` writes this page.
"""

TITLES = {"core": "The core", "lua": "The scripts"}


def page(results: Mapping[str, Mapping[str, str]], samples: Mapping[str, Sequence[Mutant]], seed: int) -> str:
    """Write the page.

    Args:
        results: Of each kind, mutant name to what noticed it.
        samples: Of each kind, the sample.
        seed: What it was drawn by.
    """
    sizes = {what: len(sample) for what, sample in samples.items()}
    lines = [HEAD.format(seed=seed, **sizes).strip()]
    for what, sample in samples.items():
        lines += _section(TITLES[what], results.get(what, {}), sample)
    return "\n".join(lines) + "\n"


def _section(title: str, results: Mapping[str, str], sample: Sequence[Mutant]) -> list[str]:
    found = {one.name: results[one.name] for one in sample if one.name in results}
    noticed = sum(map(bool, found.values()))
    survivors = sorted(name for name, by in found.items() if not by)
    same = [name for name in survivors if name in SAME]
    missed = [name for name in survivors if name not in SAME]
    judged = max(1, noticed + len(missed))
    run = f"{len(found)} of {len(sample)} drawn mutants were run: {noticed} were detected, {_by(found)};"
    rest = f"{len(same)} are equivalent; {len(missed)} were missed."
    everything = f"{noticed / max(1, len(found)):.0%} with the equivalent ones"
    lines = [
        f"\n## {title}\n",
        run,
        rest,
        f"\n**{noticed} of {judged}: {noticed / judged:.0%}** ({everything}).",
    ]
    for head, names, why in (("Missed", missed, OPEN), ("Equivalent", same, SAME)):
        if names:
            lines += [f"\n| {head} | Why |", "| --- | --- |"]
            lines += [f"| `{_cell(name)}` | {why.get(name, 'not investigated yet')} |" for name in names]
    return lines


def _by(found: Mapping[str, str]) -> str:
    simulator = sum(by == "the simulator" for by in found.values())
    return f"{simulator} of them by the simulator before any test"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
