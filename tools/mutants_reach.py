"""Which test reaches which line of the package: recorded by `python tools/mutate.py reach`, read to choose tests.

While it records, this module is a plugin of pytest. It writes one line for each test, so that a later run goes on where
the last one stopped. Lines are found again after the code has changed, as far as they still stand somewhere.
"""

import difflib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "pawlock"
KEPT = ROOT / ".make" / "mutants"
"""What is recorded: one file of tests, and the sources as they were."""
FOLDERS = ("core", "primitives")
SIMULATOR = "the simulator"


class Tracer:
    """Notes each line that is run in the folders that are changed."""

    def __init__(self, package: Path) -> None:
        """Watch the package in this folder."""
        self.prefixes = tuple(f"{package / folder}{os.sep}" for folder in FOLDERS)
        self.skip = len(f"{package}{os.sep}")
        self.reached: set[tuple[str, int]] = set()
        self._ours: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, _event: str, _arg: object) -> Any:  # noqa: ANN401 - as sys.settrace has it
        """Enter a function: watch its lines if it is ours."""
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            ours = self._ours[code] = code.co_filename.startswith(self.prefixes)
        if not ours:
            return None
        self.reached.add((code.co_filename, frame.f_lineno))
        return self._line

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401 - the same
        if event == "line":
            self.reached.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def start(self) -> None:
        """Watch this thread and those that begin from here on."""
        threading.settrace(self)
        sys.settrace(self)

    def taken(self) -> dict[str, list[int]]:
        """Give what was reached since the last time, and forget it."""
        reached, self.reached = self.reached, set()
        files: dict[str, list[int]] = {}
        for name, line in sorted(reached):
            files.setdefault(name[self.skip :], []).append(line)
        return files


class Recorder:
    """Writes of each test what it reached and how long it took."""

    def __init__(self, package: Path, minutes: float) -> None:
        """Watch the package in this folder, and begin no test after so many minutes."""
        self.tracer = Tracer(package)
        self.until = time.monotonic() + minutes * 60
        self.known = {test.name for test in recorded()}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what is known, and the second flavour of a server."""
        wanted = [one for one in items if one.nodeid not in self.known and not _second_flavour(one)]
        config.hook.pytest_deselected(items=[one for one in items if one not in wanted])
        items[:] = wanted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record one test, with what its fixtures do."""
        if time.monotonic() > self.until:
            item.session.shouldstop = "the time is over"
        self.tracer.taken()
        self.tracer.start()
        begun = time.monotonic()
        result = yield
        took = time.monotonic() - begun
        sys.settrace(None)
        note(item.nodeid, took, self.tracer.taken())
        return result


def _second_flavour(item: pytest.Item) -> bool:
    return "redis" in getattr(getattr(item, "callspec", None), "params", {}).values()


def note(name: str, seconds: float, files: dict[str, list[int]]) -> None:
    """Add one test to what is recorded."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "reach.jsonl").open("a", encoding="utf-8") as out:
        out.write(json.dumps({"test": name, "seconds": round(seconds, 3), "files": files}) + "\n")


class Reached(NamedTuple):
    """What one test reaches.

    Attributes:
        name: Its id.
        seconds: How long it took, while it was watched.
        files: Lines of each file, below the package.
    """

    name: str
    seconds: float
    files: dict[str, list[int]]


def recorded() -> list[Reached]:
    """Read all that is recorded."""
    path = KEPT / "reach.jsonl"
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Reached(one["test"], one["seconds"], one["files"]) for one in map(json.loads, lines)]


class Reach:
    """Answers which tests reach a line of the code as it is now."""

    def __init__(self) -> None:
        """Read what is recorded."""
        self.tests = {test.name: test for test in recorded()}
        self._by_file: dict[str, dict[int, set[str]]] = {}
        for test in self.tests.values():
            for file, lines in test.files.items():
                of_file = self._by_file.setdefault(file, {})
                for line in lines:
                    of_file.setdefault(line, set()).add(test.name)

    def of(self, file: str, line: int) -> set[str]:
        """Give the tests that reach a line, or the nearest line before it that is known; at worst, the file."""
        known = self._by_file.get(file, {})
        then = _then(file)
        for at in range(line, max(0, line - 8), -1):
            if tests := known.get(then.get(at, 0)):
                return tests
        return self.of_folder(file)

    def of_script(self, file: str) -> set[str]:
        """Give the tests that reach a line where a script, or one that includes it, is sent."""
        tests: set[str] = set()
        for script in _including(PACKAGE / file):
            word = re.compile(rf"\b_{script.stem.upper()}\b")
            for module in script.parent.glob("*.py"):
                for number, line in enumerate(module.read_text(encoding="utf-8").splitlines(), 1):
                    if word.search(line) and " = load(" not in line:
                        tests |= self.of(module.relative_to(PACKAGE).as_posix(), number)
        return tests or self.of_folder(Path(file).parent.as_posix())

    def of_folder(self, start: str) -> set[str]:
        """Give the tests that reach a file, or the modules of a folder."""
        lines = (of for file, of in self._by_file.items() if file.startswith(start))
        return {test for of in lines for tests in of.values() for test in tests}

    def seconds(self, test: str) -> float:
        """Tell how long a test took."""
        return self.tests[test].seconds


def _then(file: str) -> dict[int, int]:
    """Map the lines of a file to those it had when it was recorded."""
    now = (PACKAGE / file).read_text(encoding="utf-8").splitlines()
    before = KEPT / "sources" / file
    then = before.read_text(encoding="utf-8").splitlines() if before.exists() else now
    blocks = difflib.SequenceMatcher(None, now, then, autojunk=False).get_matching_blocks()
    return {block.a + at + 1: block.b + at + 1 for block in blocks for at in range(block.size)}


def _including(script: Path) -> set[Path]:
    """List the scripts that are sent with this one's text in them: itself, or those that include it."""
    names = (script.stem, f"{script.parent.name}.{script.stem}")
    lines = [f"--@include {name}\n" for name in names]
    found = set() if script.stem.startswith("_") else {script}
    for other in (PACKAGE / "primitives").rglob("*.lua"):
        text = other.read_text(encoding="ascii")
        near = script.stem.startswith("_") and script.parent in (other.parent, PACKAGE / "primitives")
        if lines[1] in text or (near and lines[0] in text):
            found |= _including(other)
    return found
