"""How much of pawlock must be read to follow a free lock, and what its structure rests on beside the layers of lint."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pawlock
from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "pawlock"

MOST = {"threads": 9, "asyncio": 11}
"""Modules that a free acquire and its release pass. Another one has to be worth it to each reader of that way."""

PAIRS = 20
"""The least of so many counts: now and then a step of the client's background work falls between."""


class Passed:
    """The modules of pawlock in which a function is called."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._before: Any = None

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents:
            self.modules.add(str(file.relative_to(PACKAGE)))

    def __enter__(self) -> set[str]:
        self._before = sys.getprofile()
        sys.setprofile(self._called)
        return self.modules

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)


def within(api: str, pairs: list[set[str]]) -> None:
    """Fail with the list if the shortest way is too long, or none."""
    modules = min(pairs, key=len)
    listed = "".join(f"\n  src/pawlock/{one}" for one in sorted(modules))
    assert "core/acquire.py" in modules, f"this is no acquire:{listed}"
    assert len(modules) <= MOST[api], (
        f"{api}: a free acquire and its release pass {len(modules)} modules, not {MOST[api]}:{listed}"
    )


def test_a_free_lock_of_threads_passes_few_modules(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        lock = client.lock("paths")
        pairs: list[set[str]] = []
        for _ in range(5):
            lock.acquire().release()
        for _ in range(PAIRS):
            with Passed() as modules:
                lock.acquire().release()
            pairs.append(modules)
    within("threads", pairs)


def test_a_free_lock_of_asyncio_passes_few_modules(valkey: Server) -> None:
    async def main() -> list[set[str]]:
        async with pawlock.connect_async(valkey.url) as client:
            lock = client.lock("paths")
            pairs: list[set[str]] = []
            for _ in range(5):
                await (await lock.acquire()).release()
            for _ in range(PAIRS):
                with Passed() as modules:
                    await (await lock.acquire()).release()
                pairs.append(modules)
            return pairs

    within("asyncio", asyncio.run(main()))


# ------------------------------------------------------------------ what no reader should meet

COMPLEXITY = re.compile(r"noqa(?!:)|noqa:[^#]*\b(C90\d?|PLR0911|PLR0912|PLR0915)\b")
RULES = ("C901", "PLR0911", "PLR0912", "PLR0915")


def test_no_function_is_too_long_or_has_too_many_branches() -> None:
    """Ruff's own limits hold, and no line of the package is excused from them."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in PACKAGE.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if COMPLEXITY.search(line)
    ]
    assert not found, "\n".join(found)
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert lint["select"] == ["ALL"]
    own = [*lint["ignore"], *lint["per-file-ignores"]["src/**"]]
    assert not [rule for rule in RULES if rule.startswith(tuple(own))]
    assert not {"mccabe", "pylint"} & lint.keys()


TOPOLOGY = re.compile(r"redlock|sentinel|cluster|topology|endpoint", re.IGNORECASE)
ANOTHER_LIBRARY = "redlock_net"


def names_in(tree: ast.AST) -> list[str]:
    """What a module calls things, and the words that it may tell one from another by; no text for people."""
    found: list[str] = []
    of: dict[type[ast.AST], Callable[[Any], Any]] = {
        ast.Name: lambda node: node.id,
        ast.Attribute: lambda node: node.attr,
        ast.arg: lambda node: node.arg,
        ast.keyword: lambda node: node.arg or "",
        ast.FunctionDef: lambda node: node.name,
        ast.AsyncFunctionDef: lambda node: node.name,
        ast.ClassDef: lambda node: node.name,
        ast.ImportFrom: lambda node: node.module or "",
        ast.alias: lambda node: node.name,
        ast.Constant: lambda node: node.value if re.fullmatch(r"[\w.+]+", str(node.value)) else "",
    }
    for node in ast.walk(tree):
        found += [str(of[type(node)](node))] if type(node) in of else []
    return found


def test_no_module_of_the_core_names_a_topology() -> None:
    """Import-linter says that it imports none; it must not tell them apart by name either."""
    modules = sorted((PACKAGE / "core").rglob("*.py"))
    assert len(modules) > 25
    found = {
        f"{path.name}: {name}"
        for path in modules
        for name in names_in(ast.parse(path.read_text(encoding="utf-8")))
        if TOPOLOGY.search(name) and name not in {ANOTHER_LIBRARY, "CLUSTERDOWN"}
    }
    assert not found, "\n".join(sorted(found))
    (layers,) = [
        one["layers"]
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
            "importlinter"
        ]["contracts"]
        if one["id"] == "layers"
    ]
    (core,) = [at for at, layer in enumerate(layers) if layer == "core"]
    (topology,) = [at for at, layer in enumerate(layers) if "topology" in layer]
    assert topology < core, "topology must stand above core, so that core cannot import it"


# ------------------------------------------------------------------ where things are changed

FILE = re.compile(r"`((?:[\w.<>-]+/)*[\w.<>-]*(?:/|\.py|\.lua|\.acl|\.md))`")
BESIDE = ("tests/", "tools/", "quota/", "turnstile.py")
"""Tests, examples in them, and tools that are run: no places of a change."""


def test_what_is_changed_together_is_five_files_at_most() -> None:
    """Each row of the table in CONTRIBUTING.md names at most five, each once, and all are there."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Where do I change")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|", 1) for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 12
    for what, where in rows:
        named = FILE.findall(where)
        places = [one for one in named if not one.startswith(BESIDE)]
        assert len(places) <= 5, f"{what}: {places}"
        assert len(set(named)) == len(named), f"{what}: {sorted(named)}"
        for one in named:
            file = one.removeprefix("pawlock/").partition("<")[0]
            homes = (PACKAGE, ROOT, ROOT / "tests/unit/conformance")
            assert any((home / file).exists() for home in homes), f"{what}: there is no {one}"
