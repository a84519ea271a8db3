"""The page of the mutants: how many were noticed, and why the others were not."""

EXPLAINED: dict[str, str] = {}
"""Why a mutant is not noticed, by its name or the beginning of it."""

HEAD = """# Mutants

How much the tests notice. Each mutant is pawl with one thing changed: a comparison, an operator, a number, a key, a
return, the order of two statements, a statement left out. The tests run against it, the ones that are most likely to
notice first; the first that fails ends it. A sample is drawn by a seed, so that it is the same everywhere:

```sh
python tools/mutate.py core --sample 130 --seed 1   # src/pawl/core
python tools/mutate.py lua --sample 130 --seed 1    # the scripts
```

Only the tests of `make test` that look at the changed file are asked, so what survives here may still be noticed by the
others. This page is written by `python tools/mutate.py report`.
"""

TITLES = {"core": "The core", "lua": "The scripts"}


def page(results: dict[str, dict[str, str]]) -> str:
    """Write the page.

    Args:
        results: Of each kind, mutant name to what noticed it.
    """
    lines = [HEAD.strip()]
    for what, title in TITLES.items():
        found = results.get(what, {})
        if not found:
            continue
        noticed = sum(map(bool, found.values()))
        simulated = sum("simulate" in by for by in found.values())
        lines += [
            f"\n## {title}\n",
            f"**{noticed} of {len(found)} were noticed ({noticed / len(found):.0%})**,",
            f"{simulated} of them by the simulator before any test.",
        ]
        survivors = sorted(name for name, by in found.items() if not by)
        if survivors:
            lines += ["\n| Survivor | Why |", "| --- | --- |"]
            lines += [f"| `{_cell(name)}` | {_why(name)} |" for name in survivors]
    return "\n".join(lines) + "\n"


def _why(name: str) -> str:
    return next((why for start, why in EXPLAINED.items() if name.startswith(start)), "not looked into yet")


def _cell(text: str) -> str:
    return text.rpartition(" #")[0].replace("|", "\\|").replace("`", "'")
