"""Change the code in one place, and see whether a test notices: `python tools/mutate.py core --sample 150 --seed 1`.

`core` changes src/pawlock/core, `lua` the scripts. Each mutant is one change, made in a copy of the package. What reaches
the changed line runs against it, the quickest first: the simulator, then tests; the first failure ends it. What reaches
what is recorded once by `reach tests/…` (some minutes, in .make/). A sample is drawn by its seed from the names of the
mutants, so that it stays the same while other code changes. Results are kept in tools/mutants.json, and a later call
goes on where the last one stopped (`--minutes`); `report` writes docs/reference/mutants.md from them. To look at one
mutant: `--show NAME`.
"""

import argparse
import difflib
import fcntl
import hashlib
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import mutants_lua, mutants_page, mutants_py  # noqa: E402 - the checkout has to be on the path first
from tools.mutants_py import Mutant  # noqa: E402
from tools.mutants_reach import KEPT, PACKAGE, SIMULATOR, Reach, Recorder, Tracer, note, recorded  # noqa: E402
from tools.mutants_why import SAME  # noqa: E402

RESULTS = ROOT / "tools" / "mutants.json"
PAGE = ROOT / "docs" / "reference" / "mutants.md"
DIRECT = {
    "mutex": ["scripts", "locks/test_multi.py", "sessions/test_admin.py"],
    "permits": ["scripts/test_exact.py", "permits/test_scripts.py", "permits/test_fuzz.py"],
    "latch": ["gates/test_latch_fuzz.py", "gates/test_latch.py"],
    "barrier": ["scripts/test_exact.py", "gates/test_barrier_fuzz.py", "gates/test_barrier.py"],
    "election": ["gates/test_election_fuzz.py", "gates/test_election.py", "gates/test_observe.py"],
    "session": ["scripts/test_exact.py", "sessions", "history"],
    "redlock": ["redlock"],
    "probe": ["scripts/test_exact.py", "preflight"],
    "primitives": ["scripts", "permits/test_fuzz.py", "permits/test_scripts.py", "gates/test_latch_fuzz.py"],
}
"""Tests that are written for the scripts of a folder, below tests/."""


def drawn(what: str, sample: int, seed: int) -> list[Mutant]:
    """Draw the sample: a larger one of the same seed begins with the smaller."""
    every = mutants_py.all_of(PACKAGE, "core") if what == "core" else mutants_lua.all_of(PACKAGE)
    every.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())
    return every[:sample]


def load(path: Path) -> dict[str, dict[str, str]]:
    """Read what is known: mutant name to what noticed it, per kind."""
    known: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return known


def already_again(path: Path) -> list[str]:
    """List those that survived once more; delete the file when tests were added."""
    again = path.with_suffix(".again")
    return again.read_text(encoding="utf-8").splitlines() if again.exists() else []


def keep(path: Path, what: str, name: str, by: str) -> None:
    """Note what is known of a mutant now. Several runs may do so at once."""
    with path.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        results = load(path)
        results.setdefault(what, {})[name] = by
        path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def work(path: Path, what: str, mutants: list[Mutant], minutes: float, *, verbose: bool, deep: bool) -> None:
    """Run mutants, until the time is over."""
    from tools.mutants_run import Ground, noticed

    end = time.monotonic() + minutes * 60
    with tempfile.TemporaryDirectory(prefix="pawlock-m-") as folder:
        ground, reach = Ground(Path(folder), verbose=verbose), Reach()
        for mutant in mutants:
            if time.monotonic() > end:
                break
            begun = time.monotonic()
            by = noticed(ground, mutant, reach, DIRECT.get(Path(mutant.file).parent.name, []), deep=deep)
            keep(path, what, mutant.name, by)
            if not by:
                with path.with_suffix(".again").open("a", encoding="utf-8") as out:
                    out.write(f"{mutant.name}\n")
            took = time.monotonic() - begun
            print(f"{took:5.1f} s  {'killed  ' if by else 'SURVIVED'} {mutant.name}   {by}", flush=True)


def record(minutes: float, tests: list[str]) -> int:
    """Record what tests reach, and once what the simulator does, until the time is over."""
    import pytest

    if not (KEPT / "sources").exists():
        shutil.copytree(PACKAGE, KEPT / "sources", ignore=shutil.ignore_patterns("__pycache__"))
    recorder = Recorder(PACKAGE, minutes)
    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", "-m", "not slow", "--timeout=60", *tests], plugins=[recorder]
    )
    if SIMULATOR not in {test.name for test in recorded()}:
        from tests.simulator.campaign import simulate

        tracer = Tracer(PACKAGE)
        tracer.start()
        simulate(range(60))
        sys.settrace(None)
        note(SIMULATOR, 1.0, tracer.taken())
    return code


def shown(mutant: Mutant) -> str:
    """Give what a mutant changes, as a person reads it."""
    before = (PACKAGE / mutant.file).read_text(encoding="utf-8")
    if mutant.file.endswith(".py"):
        before = mutants_py.plain(before)
    lines = difflib.unified_diff(before.splitlines(), mutant.write().splitlines(), lineterm="", n=6)
    return "\n".join([f"{mutant.file}:{mutant.line}", *lines])


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=["core", "lua", "reach", "report"])
    parser.add_argument("tests", nargs="*", help="for reach: what to record")
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after so many")
    parser.add_argument("--part", default="0/1", help="0/3, 1/3 and 2/3 share the work of three runs")
    parser.add_argument("--only", help="the mutants whose name has this in it, whatever is known of them")
    parser.add_argument("--survivors", action="store_true", help="those that survived, once more")
    parser.add_argument("--thorough", action="store_true", help="ask more tests, and more of the simulator")
    parser.add_argument("--show", help="show what the mutants with this in their name change")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where they are kept")
    parser.add_argument("--verbose", action="store_true", help="show what the tests say")
    options = parser.parse_args()
    if options.what == "reach":
        return record(options.minutes, options.tests)
    if options.what == "report":
        samples = {what: drawn(what, options.sample, options.seed) for what in ("core", "lua")}
        PAGE.write_text(mutants_page.page(load(options.results), samples, options.seed), encoding="utf-8")
        return 0
    # So that the fork and the copy go, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    mutants = drawn(options.what, options.sample, options.seed)
    if options.show:
        print("\n".join(shown(one) for one in mutants if options.show in one.name))
        return 0
    known = load(options.results).get(options.what, {})
    part, _, parts = options.part.partition("/")
    mine = mutants[int(part) :: int(parts)]
    if options.only:
        mine = [one for one in mine if options.only in one.name]
    elif options.survivors:
        again = already_again(options.results)
        mine = [one for one in mine if known.get(one.name) == "" and one.name not in {*SAME, *again}]
    else:
        mine = [one for one in mine if one.name not in known]
    work(options.results, options.what, mine, options.minutes, verbose=options.verbose, deep=options.thorough)
    known = load(options.results).get(options.what, {})
    done = [known[one.name] for one in mutants if one.name in known]
    print(f"{sum(map(bool, done))} of {len(done)} were noticed; {len(mutants) - len(done)} are left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
