"""Run the tests against a mutant: in a fork of a process that has everything but pawlock loaded."""

import compileall
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from tools.mutants_py import Mutant
from tools.mutants_reach import PACKAGE, ROOT, SIMULATOR, Reach

GUARD = "tests/project/benchmarks/test_guard.py::test_no_hot_path_costs_more_than_it_may"
"""Counts what each hot path costs; it watches the interpreter itself, so that what it reaches cannot be recorded."""
Task: TypeAlias = Callable[[], str]
HEAVY = [
    *("asyncio", "hypothesis", "hypothesis.stateful", "importlib.metadata", "lupa.lua51", "lupa.luajit21"),
    *("pytest_asyncio", "pytest_timeout", "pytest_rerunfailures", "xdist.plugin"),
    *("redis", "redis.asyncio", "redis.sentinel", "redis.cluster"),
]
"""Loaded once, before the forks. None of them may load pawlock."""
SEEDS, MORE_SEEDS = 100, 500
"""Of the simulator, before the tests and, when it is to be thorough, after them."""
FIRST, SECONDS, THOROUGH, SLOWEST = 3.0, 8.0, 30.0, 6.0
"""Tests of so many seconds run first, then others of so many; none that takes longer alone."""
HANGS = 20
"""Seconds after which a test has failed: several times what the slowest of them takes."""
ARGUMENTS = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", f"--timeout={HANGS}", "--reruns=1"]
# The plugins are loaded before the fork.
ARGUMENTS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
CRASH, HANG = "it crashed", "a hang"
TEXTUAL = ("::test_a_wrong_script_is_noticed[", "tests/nightly/simulation/", "test_headers.py")
"""Tests that change the code themselves, or read it: a changed text is enough for them to fail."""


class Chosen:
    """A plugin of pytest: these tests alone, in this order; remembers which failed."""

    def __init__(self, names: Sequence[str]) -> None:
        """Choose the tests."""
        self.order = {name: at for at, name in enumerate(names)}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        places = [(self._place(one.nodeid), one) for one in items]
        config.hook.pytest_deselected(items=[one for place, one in places if place < 0])
        items[:] = [one for place, one in sorted(places, key=lambda pair: pair[0]) if place >= 0]

    def _place(self, name: str) -> int:
        return self.order.get(name, self.order.get(name.partition("[")[0], -1))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure that stays when it is tried again."""
        if report.outcome == "failed":
            self.failed = report.nodeid


def tested(names: Sequence[str]) -> str:
    """Run tests in this process; the name of the first that fails, or ""."""
    chosen = Chosen(names)
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    code = pytest.main([*ARGUMENTS, *files], plugins=[chosen])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    return chosen.failed or names[0]


def simulated(begin: int, end: int) -> str:
    """Run seeds of the simulator in this process; which it is, if one breaks a promise or crashes."""
    from tests.simulator.command import main

    for start in range(begin, end, 20):
        try:
            if main(["--start", str(start), "--seeds", "20", "--as-drawn"]):
                return SIMULATOR
        except Exception:  # noqa: BLE001 - whatever the mutant raises
            return SIMULATOR
    return ""


class Ground:
    """A copy of the package to change, and the forks that run on it."""

    def __init__(self, folder: Path, *, verbose: bool = False) -> None:
        """Make the copy in a folder."""
        self.folder = folder
        self.verbose = verbose
        for name in HEAVY:
            __import__(name)
        loaded = [name for name in sys.modules if name.partition(".")[0] == "pawlock"]
        if loaded:
            raise RuntimeError(f"loaded before the fork: {loaded}")
        shutil.copytree(PACKAGE, folder / "pawlock", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(folder, quiet=2)
        self.unfit: set[str] = set()
        """Tests that fail without any mutant."""
        self._sound: dict[str, bool] = {}

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Have a mutant in the copy."""
        target = self.folder / "pawlock" / mutant.file
        before = target.read_text(encoding="utf-8")
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink()
        target.write_text(mutant.write(), encoding="utf-8")
        try:
            yield
        finally:
            target.write_text(before, encoding="utf-8")

    def run(self, task: Task, seconds: float) -> str | None:
        """Run a task in a fork; what it gives, "it crashed", or None if it takes too long."""
        ours, theirs = os.pipe()
        temporary = tempfile.mkdtemp(prefix="t-", dir=self.folder)
        pid = os.fork()
        if not pid:
            os.close(ours)
            self._child(task, theirs, temporary)
        os.close(theirs)
        try:
            return self._answer(ours, seconds)
        finally:
            os.close(ours)
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            shutil.rmtree(temporary, ignore_errors=True)

    def _child(self, task: Task, out: int, temporary: str) -> None:
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.chdir(ROOT)
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0,) if self.verbose else (0, 1, 2):
                os.dup2(quiet, stream)
            sys.path.insert(0, str(self.folder))
            sys.dont_write_bytecode = True
            tempfile.tempdir = None
            os.environ.update(
                PYTHONPATH=str(self.folder),
                PYTHONDONTWRITEBYTECODE="1",
                PAWLOCK_TEST_GRACE="0.5",
                TMPDIR=temporary,
            )
            answer = task()
        except BaseException:  # noqa: BLE001 - whatever it is, the mutant did it
            traceback.print_exc()
            answer = CRASH
        try:
            os.write(out, b"=" + answer.encode())
        finally:
            os._exit(0)

    def _answer(self, pipe: int, seconds: float) -> str | None:
        end = time.monotonic() + seconds
        answer = b""
        while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            more = os.read(pipe, 4096)
            if not more:
                return answer[1:].decode() if answer else CRASH
            answer += more
        return answer[1:].decode() if answer else None

    def passes(self, by: str, task: Task) -> bool:
        """Tell whether what has just failed passes without any mutant; asked once for each test."""
        if by == SIMULATOR:
            return True
        if by in (CRASH, HANG):
            return self.run(task, 100) == ""
        if by not in self._sound:
            self._sound[by] = self.run(partial(tested, [by]), 60) == ""
        return self._sound[by]


def noticed(ground: Ground, mutant: Mutant, reach: Reach, direct: Collection[str], *, deep: bool) -> str:
    """Run against a mutant what is likely to notice it, the quickest first; what did so, or ""."""
    if mutant.file.endswith(".lua"):
        # Those that are written for a script send it themselves.
        reached = {*reach.of_script(mutant.file), *(name for name in reach.tests if _direct(name, direct))}
    else:
        reached = reach.of_folder(mutant.file) if mutant.lasting else reach.of(mutant.file, mutant.line)
    reached = {name for name in reached if name not in ground.unfit and not _textual(name)}
    tasks = _tasks(
        reached, *waves(reach, reached, direct, THOROUGH if deep else SECONDS), MORE_SEEDS if deep else 0
    )
    with ground.changed(mutant):
        by, task = _first(ground, tasks)
    if not by or ground.passes(by, task):
        return by
    print(f"left out, as it fails without any mutant: {by}", flush=True)
    if not by.startswith("tests/"):
        raise SystemExit(f"without any mutant: {by}")
    ground.unfit.add(by)
    return noticed(ground, mutant, reach, direct, deep=deep)


def _first(ground: Ground, tasks: Sequence[tuple[Task, float]]) -> tuple[str, Task]:
    for task, seconds in tasks:
        by = ground.run(task, seconds)
        if by != "":
            return HANG if by is None else by, task
    return "", str


def _tasks(
    reached: Collection[str], first: list[str], others: list[str], more: int
) -> list[tuple[Task, float]]:
    tasks: list[tuple[Task, float]] = []
    if SIMULATOR in reached:
        tasks.append((partial(simulated, 0, SEEDS), 40))
    tasks += [
        (partial(tested, wave), 2.5 * HANGS + 60) for wave in (first, others, [GUARD] if more else []) if wave
    ]
    if SIMULATOR in reached and more:
        tasks.append((partial(simulated, SEEDS, SEEDS + more), 90))
    return tasks


def waves(
    reach: Reach, reached: Collection[str], direct: Collection[str], seconds: float
) -> tuple[list[str], list[str]]:
    """Choose tests: the very quickest, then the quickest of each file in turn; those written for it count more."""
    names = [name for name in reached if name != SIMULATOR and reach.seconds(name) <= SLOWEST]
    names.sort(key=lambda name: (reach.seconds(name) * (0.3 if _direct(name, direct) else 1.0), name))
    first = _within(FIRST, reach, names, files=40)
    met: Counter[str] = Counter()
    turns = []
    for name in names:
        file = name.partition("::")[0]
        met[file] += 1
        if name not in first:
            turns.append((met[file] * (0.3 if _direct(name, direct) else 1.0), name))
    return first, _within(seconds, reach, [name for _, name in sorted(turns)], files=99)


def _textual(name: str) -> bool:
    return any(part in name for part in TEXTUAL)


def _direct(name: str, direct: Collection[str]) -> bool:
    return any(name.startswith(f"tests/{start}") for start in direct)


def _within(seconds: float, reach: Reach, names: Sequence[str], files: int) -> list[str]:
    chosen: list[str] = []
    homes: dict[str, None] = {}
    for name in names:
        home = name.partition("::")[0]
        if seconds <= 0:
            break
        if home not in homes and len(homes) >= files:
            continue
        homes[home] = None
        chosen.append(name)
        seconds -= reach.seconds(name)
    return sorted(chosen, key=lambda name: list(homes).index(name.partition("::")[0]))
