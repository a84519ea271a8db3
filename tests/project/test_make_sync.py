"""The shells of threads are what `tools/make_sync.py` makes of those of asyncio, and lint says where they are not."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a dataclass looks for its module there
    spec.loader.exec_module(module)
    return module


MAKE = load("make_sync")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of both folders of shells, in place of the project's."""
    for folder in ("aio", "sync"):
        shutil.copytree(MAKE.PACKAGE / folder, tmp_path / folder)
    monkeypatch.setattr(MAKE, "PACKAGE", tmp_path)
    # Two of them will do: each is formatted by programs of its own.
    monkeypatch.setattr(MAKE, "GENERATED", ("gates", "multi"))
    return tmp_path


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_lint_checks_them() -> None:
    commands = [check.command for check in load("lint").CHECKS]
    assert ("python", "tools/make_sync.py", "--check") in commands


def test_a_shell_that_was_changed_without_its_other_fails(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert MAKE.main(["--check"]) == 0
    change(copy / "aio/gates.py", "n: int = 1", "n: int = 2")
    assert MAKE.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "not what src/pawlock/aio/ gives: gates\n" in said
    assert "run `.venv/bin/python tools/make_sync.py`" in said
    assert "+    def count_down(self, n: int = 2" in said
    assert "n: int = 1" in (copy / "sync/gates.py").read_text(encoding="utf-8"), "a check writes nothing"
    assert MAKE.main([]) == 0
    assert MAKE.main(["--check"]) == 0


def test_a_generated_shell_that_was_changed_by_hand_fails(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(copy / "sync/gates.py", "def arrived", "def came")
    assert MAKE.main(["--check"]) == 1
    assert "gives: gates\n" in capsys.readouterr().out


def test_what_uses_asyncio_itself_is_refused(copy: Path) -> None:
    change(copy / "aio/gates.py", "from pawlock._described", "import asyncio\nfrom pawlock._described")
    change(copy / "aio/gates.py", "text = latch.check_part(part)", "text = asyncio.sleep(0)")
    with pytest.raises(SystemExit, match="uses asyncio itself"):
        MAKE.main(["--check"])


ALLOWED = {
    "election.py": (
        "In asyncio it is a coroutine function, cancelled at its next",
        "await when the lead is lost, when ``stop`` is set",
        "and so does a coroutine function; a",
        "Decorate a function or coroutine function that only the leader may run.",
    )
}
"""Where threads speak of asyncio: a leader may guard functions of both."""


def test_threads_do_not_speak_of_asyncio() -> None:
    words = re.compile(r"\b(await|async|asyncio|tasks?|coroutines?)\b")
    for name in MAKE.GENERATED:
        text = (MAKE.PACKAGE / f"sync/{name}.py").read_text(encoding="utf-8")
        for allowed in ALLOWED.get(f"{name}.py", ()):
            assert allowed in text, "no longer said: allow it no more"
            text = text.replace(allowed, "")
        assert not words.findall(text), name


def test_each_rule_is_needed() -> None:
    texts = [(MAKE.PACKAGE / f"aio/{name}.py").read_text(encoding="utf-8") for name in MAKE.GENERATED]
    told = re.sub(r"\s+", " ", "".join(texts))
    rules = [pattern for pattern, _ in (*MAKE.NAMES, *MAKE.WORDS)]
    rules += [*MAKE.SENTENCES, *map(re.escape, (MAKE.AT_ONCE, MAKE.LATER, MAKE.ONLY_ASYNCIO, *MAKE.CORE))]
    assert [rule for rule in rules if not re.search(rule, told)] == []


SAMPLE = '''"""The door of asyncio."""

from __future__ import annotations

from typing import Any

from pawlock._inside import engine_here
from pawlock.aio.block import Acquiring, acquired, check_home
from pawlock.aio.lock import AsyncLease, given
from pawlock.core.acquire import acquire

__all__ = ["AsyncDoor"]


class AsyncDoor:
    """A door for tasks; made by ``AsyncClient.door``.

    While a task is inside ``async with``, a loss cancels it at its next await, and the block raises ``LeaseLost``.
    """

    def acquire(self) -> Acquiring[AsyncLease]:
        """Open it. Await it, or enter it with ``async with``."""
        return Acquiring(acquired(self, 1, give=given))  # the task's own

    async def opened(self, other: Any) -> bool:
        """Whether this task opened it; ``await door.opened()`` asks."""
        check_home(self, "opened")
        async with other:
            await other.knock()
        if (await acquire.look(engine_here(self))).held:
            return True
        given(await acquire.try_acquire(await self.opened(other)))
        return False
'''

MADE = '''# Written by tools/make_sync.py from aio/door.py: change that, and run it.
"""The door of threads."""

from __future__ import annotations

from typing import Any

from pawlock._fallback import ACQUIRE
from pawlock._inside import engine_of
from pawlock.core.acquire import acquire
from pawlock.runtimes.threads import at_once, run
from pawlock.sync.lock import Lease, given

__all__ = ["Door"]


class Door:
    """A door for threads; made by ``Client.door``."""

    def acquire(self) -> Lease:
        """Open it."""
        return at_once(
            ACQUIRE[plan.options.on_unavailable](engine_of(self), 1, give=given)
        )  # the thread's own

    def opened(self, other: Any) -> bool:
        """Whether this thread opened it; ``door.opened()`` asks."""
        with other:
            other.knock()
        if run(acquire.look(engine_of(self))).held:
            return True
        given(run(acquire.try_acquire(self.opened(other))))
        return False
'''


def test_the_rules_of_code_and_words() -> None:
    assert MAKE.sync_of(SAMPLE, "door") == MADE
