"""No call stands in a guarded step; see ``Engine.guard`` for why.

Read from the source, so that whoever writes the next one is told at once. What the rule is for is tried by the sweeps
of ``tests/faults/test_handler_sweep.py``, which run handlers at every step that the interpreter allows.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pawlock

pytestmark = pytest.mark.slow

SOURCE = Path(pawlock.__file__).parent
GUARDS = {"guard", "_guard", "mutex", "_starting"}

MAINTENANCE = {
    # Run by the maintenance thread alone, and Python runs signal handlers in the main thread.
    ("core/state/schedule.py", "add_again"),
    ("core/state/schedule.py", "take_due"),
    ("core/state/schedule.py", "sleep_until"),
    ("core/state/schedule.py", "first_need"),
    ("core/state/schedule.py", "some"),
    # Run by the thread that renews for a blocked loop: the same.
    ("core/state/schedule.py", "overdue"),
}
OTHER = {
    # What is known of several masters; nobody waits for another thread there.
    ("core/quorum/nodes.py", "met"),
    # One lease after another, and each of them is a step: between two of them a signal handler finds both whole.
    ("core/keep/engine.py", "apply_renewals"),
}
FORBIDDEN = (
    *(ast.Call, ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith, ast.With, ast.JoinedStr, ast.Lambda),
    *(ast.List, ast.Dict, ast.Set),
)


def properties() -> set[str]:
    """The names that look like an attribute and are a call."""
    found: set[str] = set()
    stored: set[str] = set()
    for path in (SOURCE / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(mark, ast.Name) and mark.id == "property" for mark in node.decorator_list
            ):
                found.add(node.name)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                stored.add(node.attr)
    # One name may be a field of one class and a property of another.
    return found - stored


def steps() -> list[tuple[str, str, ast.With]]:
    """Each guarded step: its file, its function, its block."""
    found: list[tuple[str, str, ast.With]] = []
    for folder in ("core", "runtimes"):
        for path in sorted((SOURCE / folder).rglob("*.py")):
            for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    found += [
                        (path.relative_to(SOURCE).as_posix(), function.name, node)
                        for node in ast.walk(function)
                        if isinstance(node, ast.With)
                        and isinstance(node.items[0].context_expr, ast.Attribute)
                        and node.items[0].context_expr.attr in GUARDS
                    ]
    return found


def breaches(block: ast.With, calls: set[str]) -> list[str]:
    """What stands in a block and must not."""
    nodes = [node for statement in block.body for node in ast.walk(statement)]
    return [
        f"line {node.lineno}: {ast.unparse(node)[:60]}"
        for node in nodes
        if isinstance(node, FORBIDDEN) or (isinstance(node, ast.Attribute) and node.attr in calls)
    ]


def test_no_call_stands_in_a_guarded_step() -> None:
    calls = properties()
    assert {"live", "contended"} <= calls
    bad = [
        f"{file}, {function}, {breach}"
        for file, function, block in steps()
        if (file, function) not in MAINTENANCE | OTHER
        for breach in breaches(block, calls)
    ]
    assert not bad, "\n".join(bad)


def test_what_is_excepted_is_there() -> None:
    known = {(file, function) for file, function, _ in steps()}
    assert known >= MAINTENANCE | OTHER
    assert len(known - MAINTENANCE - OTHER) > 20


@pytest.mark.parametrize(
    "text",
    ["f()", "for x in y: pass", "a = [b]", "a = server_lease.live", "a = f'{b}'", "a = {b for b in c}"],
)
def test_a_breach_is_found(text: str) -> None:
    (block,) = ast.parse(f"with self.guard:\n    {text}").body
    assert isinstance(block, ast.With)
    assert breaches(block, properties())
