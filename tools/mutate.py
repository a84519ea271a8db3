"""Change the code in one place, and see whether a test notices: `python tools/mutate.py core --sample 150 --seed 1`.

`core` changes src/pawl/core, `lua` the scripts. Each mutant is one change, made in a copy of the package; the tests
that are most likely to notice run first, the first failure ends it. A sample is drawn by its seed, so it is the same on
every machine. Results are kept in tools/mutants.json, and a later call goes on where the last one stopped
(`--minutes`); `python tools/mutate.py report` writes docs/reference/mutants.md from them. To look at one mutant:
`--show NAME`.
"""

import argparse
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import mutants_lua, mutants_py  # noqa: E402 - the checkout has to be on the path first
from tools.mutants_py import Mutant  # noqa: E402

RESULTS = ROOT / "tools" / "mutants.json"
PAGE = ROOT / "docs" / "reference" / "mutants.md"
PYTEST = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow"]
SIMULATE = ["-m", "pawl.testing", "simulate", "--seeds"]
MEMORY = ["testing/test_memory.py", "testing/test_waiters_told.py"]
LIFE = [
    *MEMORY,
    "regressions",
    "edges/test_life.py",
    "edges/test_loss.py",
    "unavailable",
    "faults/test_waiting.py",
]
CORE = {
    "admin": ["sessions/test_admin.py", "sessions/test_records.py"],
    "barrier": [*MEMORY, "gates/test_barrier.py"],
    "breaker": ["unavailable"],
    "deadlock": ["sessions/test_deadlock.py"],
    "endings": [
        *LIFE,
        "edges/test_detach.py",
        "edges/test_close.py",
        "edges/test_exit.py",
        "edges/test_cancel.py",
    ],
    "engine": [*LIFE, "redlock", "sessions", "edges/test_garbage.py"],
    "durable": ["topology/test_replicas.py", "permits/test_replicas.py"],
    "election": ["gates/test_election.py", "gates/test_observe.py"],
    "gate": ["gates/test_latch.py", "gates/test_barrier.py"],
    "handover": ["contention/test_handover.py", "regressions"],
    "history": ["history", "test_bad_input.py", *MEMORY],
    "info": ["test_bad_input.py", *MEMORY, "permits/test_semaphore.py", "sessions/test_records.py"],
    "latch": [*MEMORY, "gates/test_latch.py"],
    "multi": ["locks/test_multi.py"],
    "multi_lease": ["locks/test_multi.py"],
    "names": ["test_bad_input.py", *MEMORY],
    "observer": ["metrics"],
    "options": ["test_bad_input.py"],
    "preflight": ["preflight"],
    "quorum": ["redlock"],
    "redlock": ["redlock"],
    "roster": ["redlock"],
    "scripts": ["scripts/test_loader.py", *MEMORY],
    "service": ["locks/test_service.py"],
    "sessions": ["sessions"],
    "shelter": ["unavailable"],
    "template": ["locks/test_decorate.py"],
    "validity": ["redlock", *MEMORY],
}
"""Tests that look at one module, below tests/; of the others, LIFE. The simulator and tests/unit come first."""

LUA = {
    "mutex": [["scripts"], ["locks/test_multi.py", "edges/test_detach.py", "sessions/test_admin.py"]],
    "permits": [["permits/test_scripts.py", "permits/test_fuzz.py"], ["permits"]],
    "latch": [["gates/test_latch_fuzz.py"], ["gates/test_latch.py"]],
    "barrier": [["gates/test_barrier_fuzz.py"], ["gates/test_barrier.py"]],
    "election": [["gates/test_election_fuzz.py"], ["gates/test_election.py", "gates/test_observe.py"]],
    "session": [["sessions", "history"]],
    "redlock": [["redlock"]],
    "": [["scripts"], ["permits/test_fuzz.py", "permits/test_scripts.py", "gates/test_latch_fuzz.py"]],
}
"""The same for the scripts, by folder; "" is what several of them begin with."""


SOUND: set[str] = set()
"""What this run has seen pass without any mutant."""


def suites(mutant: Mutant) -> list[list[str]]:
    """List what to run against a mutant, the quickest first."""
    path = Path(mutant.file)
    if path.suffix == ".lua":
        folder = path.parent.name if path.parent.name != "primitives" else ""
        first = [[*SIMULATE, "150"]] if folder in ("mutex", "") else []
        return [*first, _pytest(["scripts/test_loader.py", *MEMORY]), *map(_pytest, LUA.get(folder, LUA[""]))]
    return [[*SIMULATE, "60"], _pytest(["unit"]), _pytest(CORE.get(path.stem, LIFE))]


def _pytest(tests: list[str]) -> list[str]:
    where = [f"tests/{one}" for one in dict.fromkeys(tests)]
    return [
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "--timeout=40",
        "--reruns=1",
        *where,
    ]


def killed_by(mutant: Mutant, copy: Path, most: int) -> str:
    """Run the suites, or the first few, against a mutant in a copy of the package; what noticed it, or ""."""
    target = copy / "pawl" / mutant.file
    before = target.read_text(encoding="utf-8")
    target.write_text(mutant.write(), encoding="utf-8")
    try:
        for suite in suites(mutant)[:most]:
            if not _passes(suite, copy):
                return (
                    " ".join(suite[1:4])
                    if suite[1] == "pawl.testing"
                    else " ".join(word for word in suite if word.startswith("tests/"))
                )
        return ""
    finally:
        target.write_text(before, encoding="utf-8")


def check_sound(suite: str, copy: Path) -> None:
    """Run once, on the copy as it is, a suite that has just failed: its failure must be the mutant's.

    Raises:
        SystemExit: It fails without any mutant.
    """
    if suite in SOUND:
        return
    tests = [word.removeprefix("tests/") for word in suite.split()]
    words = [*SIMULATE, "60"] if suite.startswith("pawl.testing") else _pytest(tests)
    if not _passes(words, copy):
        raise SystemExit(f"it fails without any mutant: {' '.join(words)}")
    SOUND.add(suite)


def _passes(suite: list[str], copy: Path) -> bool:
    environ = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PAWL_TEST_GRACE": "0.5",
    }
    process = subprocess.Popen(
        [sys.executable, *suite],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(240) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def drawn(what: str, sample: int, seed: int) -> list[Mutant]:
    """Draw the sample."""
    every = (
        mutants_py.all_of(ROOT / "src" / "pawl", "core")
        if what == "core"
        else mutants_lua.all_of(ROOT / "src" / "pawl")
    )
    # A larger sample of the same seed begins with the smaller.
    random.Random(seed).shuffle(every)  # noqa: S311 - repeatable, on purpose
    return every[:sample]


def load() -> dict[str, dict[str, str]]:
    """Read what is known: mutant name to what noticed it, per kind."""
    known: dict[str, dict[str, str]] = (
        json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    )
    return known


def keep(what: str, name: str, noticed: str | None) -> None:
    """Note what is known of a mutant now; None: nothing. Several runs may do so at once."""
    with RESULTS.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        results = load()
        results.setdefault(what, {}).pop(name, None)
        if noticed is not None:
            results[what][name] = noticed
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def work(what: str, mutants: list[Mutant], minutes: float, *, quick: bool) -> None:
    """Run those that are not known yet, until the time is over."""
    end = time.monotonic() + minutes * 60
    with tempfile.TemporaryDirectory(prefix="pawl-mutants-") as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "src" / "pawl", copy / "pawl", ignore=shutil.ignore_patterns("__pycache__"))
        for mutant in mutants:
            results = load()
            if mutant.name in results.get(what, {}):
                continue
            if time.monotonic() > end:
                break
            noticed = killed_by(mutant, copy, 2 if quick else 9)
            if quick and not noticed:
                continue
            if noticed:
                check_sound(noticed, copy)
            keep(what, mutant.name, noticed)
            print(f"{'killed  ' if noticed else 'SURVIVED'} {mutant.name}", flush=True)


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=["core", "lua", "report"])
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no mutant after so many")
    parser.add_argument(
        "--quick", action="store_true", help="only what needs no server; note only what is noticed"
    )
    parser.add_argument("--part", default="0/1", help="0/3, 1/3 and 2/3 share the work of three runs")
    parser.add_argument("--only", help="the mutants whose name has this in it, whatever is known of them")
    parser.add_argument("--show", help="print one mutant as it would be written")
    options = parser.parse_args()
    if options.what == "report":
        from tools import mutants_page

        PAGE.write_text(mutants_page.page(load()), encoding="utf-8")
        return 0
    mutants = drawn(options.what, options.sample, options.seed)
    if options.show:
        print("\n".join(one.write() for one in mutants if one.name == options.show))
        return 0
    if options.only:
        mutants = [one for one in mutants if options.only in one.name]
        for one in mutants:
            keep(options.what, one.name, None)
    part, _, parts = options.part.partition("/")
    mutants = mutants[int(part) :: int(parts)]
    work(options.what, mutants, options.minutes, quick=options.quick)
    known = {one.name: load().get(options.what, {}).get(one.name) for one in mutants}
    done = [noticed for noticed in known.values() if noticed is not None]
    print(f"{sum(map(bool, done))} of {len(done)} were noticed; {len(known) - len(done)} are left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
