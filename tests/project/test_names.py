"""The public names: `pawlock` exports them all, and both APIs spell them alike."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pawlock
from pawlock import errors

PACKAGE = Path(pawlock.__file__).parent
PAIRS: list[tuple[type, type]] = [
    (getattr(pawlock, name.removeprefix("Async")), getattr(pawlock, name))
    for name in pawlock.__all__
    if name.startswith("Async")
]


def public(cls: type) -> dict[str, Any]:
    """The public members of a class, its own and inherited ones."""
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


def shape(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the parameters; marks for "not given" count as equal."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (p.name, p.kind, "unset" if type(p.default).__name__ == "_Unset" else p.default) for p in parameters
    ]


def types_of(function: Callable[..., Any]) -> dict[str, str]:
    """Types of the parameters as they are written, of either API."""
    annotations = inspect.get_annotations(function)
    written = {name: str(kind) for name, kind in annotations.items() if name != "return"}
    # A function that pawlock calls is a coroutine function in asyncio.
    plain = {name: re.sub(r"\bAwaitable\[(\w+)\]", r"\1", kind) for name, kind in written.items()}
    return {name: re.sub(r"\b(Base)?Async(?=[A-Z])", r"\1", kind) for name, kind in plain.items()}


def test_both_apis_have_the_same_members_and_parameters() -> None:
    """Most of `sync/` is written from `aio/`; the rest is by hand."""
    assert len(PAIRS) > 10
    for plain, other in PAIRS:
        ours, theirs = public(plain), public(other)
        assert ours.keys() == theirs.keys(), plain
        for name, member in ours.items():
            where = f"{plain.__name__}.{name}"
            assert isinstance(member, property) == isinstance(theirs[name], property), where
            assert callable(member) == callable(theirs[name]), where
            if callable(member):
                assert shape(member) == shape(theirs[name]), where
                assert types_of(member) == types_of(theirs[name]), where
    assert shape(pawlock.connect) == shape(pawlock.connect_async)
    assert types_of(pawlock.connect) == types_of(pawlock.connect_async)


def test_pawlock_lists_all_its_public_names() -> None:
    assert pawlock.__all__ == sorted(set(pawlock.__all__)), "in order, so that a gap is seen"
    shown = {name: getattr(pawlock, name) for name in pawlock.__all__}
    raised = {name for name, value in vars(errors).items() if _is_error(value)}
    ours = {
        name
        for name, value in vars(pawlock).items()
        if str(getattr(value, "__module__", "")).startswith("pawlock")
    }
    assert raised | {name for name in ours if not name.startswith("_")} <= set(shown)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.PawlockError)


def test_every_error_has_a_code_of_its_own_a_cause_and_a_solution() -> None:
    codes: dict[str, str] = {}
    for name, cls in vars(errors).items():
        if not _is_error(cls):
            continue
        assert cls.code not in codes, f"{name} and {codes[cls.code]} share a code"
        codes[cls.code] = name
        assert name in str(errors.__doc__), f"{name} stands in the tree"
        if not cls.__subclasses__() and cls not in (errors.NotSupported, errors.ConfigurationError):
            assert "Cause:" in str(cls.__doc__), name
            assert "Solution:" in str(cls.__doc__), name


def test_each_module_lists_what_it_gives() -> None:
    """Public functions and classes stand in its `__all__`; that all of it exists, ruff and pyright see."""
    for path in PACKAGE.rglob("[a-z]*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        defined = [n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        # What a decorator takes, such as a command of click, is given elsewhere.
        own = {n.name for n in defined if isinstance(n, ast.ClassDef) or not n.decorator_list}
        lists = [
            n.value for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
        ]
        listed = {one.value for given in lists for one in ast.walk(given) if isinstance(one, ast.Constant)}
        assert {name for name in own if not name.startswith("_")} <= listed, path
