"""Both APIs are spelled alike: the same methods, parameters, defaults, and the same words about them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import pawlock
from pawlock.aio import AsyncLeaders, AsyncLost
from pawlock.sync import Leaders, Lost

PAIRS: list[tuple[type, type]] = [
    (pawlock.Client, pawlock.AsyncClient),
    (pawlock.Lock, pawlock.AsyncLock),
    (pawlock.Lease, pawlock.AsyncLease),
    (pawlock.Semaphore, pawlock.AsyncSemaphore),
    (pawlock.Latch, pawlock.AsyncLatch),
    (pawlock.Barrier, pawlock.AsyncBarrier),
    (pawlock.Election, pawlock.AsyncElection),
    (pawlock.RWLock, pawlock.AsyncRWLock),
    (pawlock.WriteLock, pawlock.AsyncWriteLock),
    (pawlock.WriteLease, pawlock.AsyncWriteLease),
    (pawlock.MultiLock, pawlock.AsyncMultiLock),
    (pawlock.Once, pawlock.AsyncOnce),
    (pawlock.Started, pawlock.AsyncStarted),
    (pawlock.LockService, pawlock.AsyncLockService),
    (pawlock.MultiLease, pawlock.AsyncMultiLease),
    (Lost, AsyncLost),
    (Leaders, AsyncLeaders),
]
INNER = (Lost, Leaders)
FUNCTIONS = [(pawlock.connect, pawlock.connect_async)]

# The words that differ because threads and tasks do. Everything else is to be the same.
WORDS = [
    (
        r"\bAsync(Barrier|Client|Election|Latch|Leaders|Lock|Lease|Lost|Once|RWLock|Semaphore|Started|WriteLease|WriteLock)\b",
        r"\1",
    ),
    (r"\bconnect_async\b", "connect"),
    (r"\basync with\b", "with"),
    (r"\bAn? async context manager\b", "A context manager"),
    (r"\ban async context manager\b", "a context manager"),
    (r"\bAn async iterator\b", "An iterator"),
    (r"\ban async iterator\b", "an iterator"),
    (r"``await ", "``"),
    (r"\btask(s?)\b", r"thread\1"),
    (r"\basyncio\.Event\b", "threading.Event"),
    (r"\basyncio\b", "threads"),
]

# What one API must say and the other cannot, by its place.
ONLY_ASYNC = {
    "Lease": (
        " While a thread is inside ``with``, a loss cancels it at its next await, and the block raises ``LeaseLost``."
    ),
    "Client": " Used in several event loops, it keeps one connection for each.",
    "WriteLock.acquire": " Await it, or enter it with ``with``.",
    "Semaphore.acquire": " Await it, or enter it with ``with``.",
    "Lock.acquire": " Await it, or enter it with ``with``.",
    "Election.campaign": " Await it, or enter it with ``with``.",
    "Election.leader_only": " A loss cancels a coroutine at its next await.",
    **{
        f"{kind}.release": (
            " NotSupported: This is another event loop than that which acquired it; nothing was touched."
        )
        for kind in ("Lease", "WriteLease", "MultiLease")
    },
    **dict.fromkeys(
        ("WriteLease.downgrade", "MultiLease.extend", "Started.finish", "Started.abandon", "Election.resign"),
        " NotSupported: This is another event loop than that which acquired it; nothing was touched.",
    ),
    **{
        f"{kind}.extend": " NotSupported: This is another event loop than that which acquired it."
        for kind in ("Lease", "WriteLease")
    },
    "MultiLock.acquire": " Await it, or enter it with ``with``.",
    "MultiLease": (
        " While a thread is inside ``with``, a loss of any of them cancels it at its next await, and the block raises"
        " ``LeaseLost``."
    ),
}


def public(cls: type) -> dict[str, Any]:
    """The public members of a class, its own and inherited ones."""
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


def magic(cls: type) -> set[str]:
    """Its own magic methods, spelled for threads."""
    own = {name for name, value in vars(cls).items() if name.startswith("__") and callable(value)}
    apied = ("__aenter__", "__aexit__", "__aiter__", "__anext__")
    return {name.replace("__a", "__", 1) if name in apied else name for name in own}


def apiless(text: str | None, where: str) -> str:
    assert text, f"{where} has no docstring"
    text = " ".join(text.split())
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text)
    return text


def shape(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the parameters; marks for "not given" count as equal."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (p.name, p.kind, "unset" if type(p.default).__name__ == "_Unset" else p.default) for p in parameters
    ]


def types_of(function: Callable[..., Any]) -> dict[str, str]:
    """Types of the parameters as they are written, without API."""
    written = {
        name: str(kind) for name, kind in inspect.get_annotations(function).items() if name != "return"
    }
    # A function that pawlock calls is a coroutine function in asyncio.
    plain = {name: re.sub(r"\bAwaitable\[(\w+)\]", r"\1", kind) for name, kind in written.items()}
    return {name: re.sub(r"\b(Base)?Async(?=[A-Z])", r"\1", kind) for name, kind in plain.items()}


@pytest.mark.parametrize(("plain", "apied"), PAIRS, ids=lambda cls: cls.__name__)
def test_the_classes_have_the_same_members(plain: type, apied: type) -> None:
    assert public(plain).keys() == public(apied).keys()
    assert magic(plain) - {"__del__"} == magic(apied) - {"__del__"}
    for name, member in public(plain).items():
        other = public(apied)[name]
        assert isinstance(member, property) == isinstance(other, property), name
        assert callable(member) == callable(other), name


METHODS = [
    pytest.param(f"{plain.__name__}.{name}", member, public(apied)[name], id=f"{plain.__name__}.{name}")
    for plain, apied in PAIRS
    for name, member in public(plain).items()
    if callable(member)
]


@pytest.mark.parametrize(("where", "plain", "apied"), METHODS)
def test_the_methods_take_the_same(where: str, plain: Callable[..., Any], apied: Callable[..., Any]) -> None:
    assert shape(plain) == shape(apied)
    assert types_of(plain) == types_of(apied)


DOCUMENTED = [
    *METHODS,
    *[
        pytest.param(f"{plain.__name__}.{name}", member, public(apied)[name], id=f"{plain.__name__}.{name}")
        for plain, apied in PAIRS
        for name, member in public(plain).items()
        if isinstance(member, property)
    ],
    *[pytest.param(plain.__name__, plain, apied, id=plain.__name__) for plain, apied in PAIRS],
]


@pytest.mark.parametrize(("where", "plain", "apied"), DOCUMENTED)
def test_the_words_are_the_same(where: str, plain: object, apied: object) -> None:
    ours = apiless(plain.__doc__, where)
    theirs = apiless(apied.__doc__, where).replace(ONLY_ASYNC.get(where, "\0"), "")
    assert ours == theirs


def test_the_doors_are_the_same() -> None:
    for plain, apied in FUNCTIONS:
        assert shape(plain) == shape(apied)
        assert types_of(plain) == types_of(apied)


PARTS = [
    importlib.import_module(name.name)
    for name in pkgutil.walk_packages(pawlock.__path__, "pawlock.")
    # A part of a Django application can be imported only where one is configured.
    if not name.name.endswith("__main__") and not name.name.startswith("pawlock.integrations.django.")
]


def test_everything_public_is_exported() -> None:
    """`pawlock` gives every public class of its errors, records and APIs, and promises nothing that is not there."""
    assert len(set(pawlock.__all__)) == len(pawlock.__all__)
    assert pawlock.__all__ == sorted(pawlock.__all__), "in order, so that a gap is seen"
    for name in pawlock.__all__:
        assert hasattr(pawlock, name), name
    wanted = {name for name, value in vars(pawlock.errors).items() if _is_error(value)}
    wanted |= {cls.__name__ for pair in PAIRS if pair[0] not in INNER for cls in pair}
    wanted |= {cls.__name__ for pair in PAIRS[:7] for cls in pair}
    wanted |= {
        "connect",
        "connect_async",
        "LockOptions",
        "LockInfo",
        "WaiterInfo",
        "LeaseState",
        "LossReason",
    }
    assert wanted <= set(pawlock.__all__)
    ours = {
        name
        for name, value in vars(pawlock).items()
        if str(getattr(value, "__module__", "")).startswith("pawlock")
    }
    shown = {name for name in ours if not name.startswith("_")}
    assert shown <= set(pawlock.__all__)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, pawlock.PawlockError)


@pytest.mark.parametrize("module", PARTS, ids=lambda module: module.__name__)
def test_each_module_lists_what_it_gives(module: ModuleType) -> None:
    """Public names that a module defines stand in its `__all__`, and all that stands there exists."""
    listed = getattr(module, "__all__", None)
    if module.__name__.split(".")[-1].startswith("_") and listed is None:
        return
    own: set[str] = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
    }
    if listed is None:
        assert not own, f"{module.__name__} defines {own} and has no __all__"
        return
    assert own <= set(listed), f"not in the __all__ of {module.__name__}"
    assert len(set(listed)) == len(listed)
    for name in listed:
        assert hasattr(module, name), name


def test_every_error_has_a_code_a_cause_and_a_cure() -> None:
    codes: dict[str, type] = {}
    for name, cls in vars(pawlock.errors).items():
        if not _is_error(cls):
            continue
        assert cls.code not in codes, f"{name} and {codes[cls.code]} share a code"
        codes[cls.code] = cls
        assert name in str(pawlock.errors.__doc__), f"{name} stands in the tree"
        if not cls.__subclasses__():
            doc = str(cls.__doc__)
            assert ("Cause:" in doc and "Solution:" in doc) or cls in (
                pawlock.NotSupported,
                pawlock.ConfigurationError,
            )
