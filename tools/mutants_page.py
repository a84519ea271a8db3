"""The page of the mutants: how many were noticed, and why the others were not."""

EXPLAINED: dict[str, str] = {
    "core/durable.py:138": "needs two faults in a row: too few replicas, and then the undo is lost as well. The token "
    "goes with its ttl then; no test has both",
    "core/shelter.py:124": "the same: the way on from there ends the lease, too, and a place may be left twice",
    "core/history.py:136": "a warning is logged again and again instead of once",
    "core/latch.py:166": "the same but for one request: who gives up before it was noted takes back what is not there",
    "core/renewal.py:205": "the first pause after a failed renewal is one part in seventeen instead of sixteen",
    "core/quorum.py:149": "the same but for one turn: with as many votes as needed it writes the fence back needlessly",
    "core/endings.py:417": "the same but for one request: an adopted lease is confirmed once more",
    "primitives/_tickets.lua:108": "numbers of tickets have gaps of two; only their order counts",
    "primitives/permits/_holders.lua:21": "the same: without a limit there is none to read",
}
"""Why a mutant is not noticed, by its name or the beginning of it."""

HEAD = """# Mutants

How much the tests notice. Each mutant is pawl with one thing changed: a comparison, an operator, a number, a key, a
return, the order of two statements, a statement left out. The tests run against it, the ones that are most likely to
notice first; the first that fails ends it. A sample is drawn by a seed, so that it is the same everywhere:

```sh
python tools/mutate.py core --sample 130 --seed 1   # src/pawl/core
python tools/mutate.py lua --sample 130 --seed 1    # the scripts
```

The sample that is shown was run while pawl was being changed, so its lines are those of the day. It is small: a mutant
that nobody notices takes minutes. What was noticed only after a test was written for it counts as noticed.

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
