"""The page of the mutants: how many were noticed, and why the others were not."""

from collections.abc import Mapping, Sequence

from tools.mutants_py import Mutant
from tools.mutants_why import OPEN, SAME

HEAD = """# Mutants

How much the tests notice. Each mutant is pawl with one thing changed: a comparison, an operator, a number, a key, a
return, the order of two statements, a statement left out. What reaches the changed line runs against it, the quickest
first: the simulator, then tests; the first that fails ends it. A sample is drawn by a seed from the names of all
mutants, so that it is the same everywhere:

```sh
python tools/mutate.py reach tests/unit tests/scripts …       # once: which test reaches which line
python tools/mutate.py core --sample {core} --seed {seed}     # src/pawl/core
python tools/mutate.py lua --sample {lua} --seed {seed}      # the scripts
```

Not changed is what decides nothing: docstrings, annotations, decorators, the texts of errors, calls that only log or
warn, `__repr__` and `__str__`. A test counts only if it passes without the mutant; a hang only where nothing hangs
without it. Tests that read or change the text of the code are not asked, and of the others only quick ones, up to a
minute: what survives here may still be noticed by the rest. What was noticed only after a test was written for it
counts as noticed: at the first look, with the quickest tests alone, it was 75 of 149 in the core and 105 of 150 in the
scripts. So a sample by another seed will be between that and this.

A mutant that nobody can tell from pawl is *the same*: it counts neither as noticed nor as missed, and the reason is
given. This page is written by `python tools/mutate.py report`.
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
    run = f"{len(found)} of {len(sample)} that were drawn were run: {noticed} were noticed, {_by(found)};"
    rest = f"{len(same)} are the same; {len(missed)} were missed."
    everything = f"{noticed / max(1, len(found)):.0%} with the same ones"
    lines = [
        f"\n## {title}\n",
        run,
        rest,
        f"\n**{noticed} of {judged}: {noticed / judged:.0%}** ({everything}).",
    ]
    for head, names, why in (("Missed", missed, OPEN), ("The same", same, SAME)):
        if names:
            lines += [f"\n| {head} | Why |", "| --- | --- |"]
            lines += [f"| `{_cell(name)}` | {why.get(name, 'not looked into yet')} |" for name in names]
    return lines


def _by(found: Mapping[str, str]) -> str:
    simulator = sum(by == "the simulator" for by in found.values())
    return f"{simulator} of them by the simulator before any test"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
