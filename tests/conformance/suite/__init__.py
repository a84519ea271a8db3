"""One suite for every primitive: it reads the registry and shows, on a real server, what each entry promises.

``run`` gives the results, ``suite`` makes them tests of pytest, and ``python -m tests.conformance.suite URL`` prints
them. A primitive of your own is judged once it is registered.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import pawlock
from pawlock.errors import ConfigurationError
from pawlock.primitives.registry import REGISTRY, Entry
from tests.conformance.suite import gates, hazards, leasing, waiting
from tests.conformance.suite.backend import Backend, CannotShowError, NeedsOneServerError
from tests.conformance.suite.checks import CHECKS, Check
from tests.conformance.suite.world import APIS, Api, World, drive

__all__ = [
    "APIS",
    "CHECKS",
    "Api",
    "Backend",
    "CannotShowError",
    "Check",
    "NeedsOneServerError",
    "Result",
    "World",
    "broken",
    "checks_of",
    "conduct",
    "main",
    "report",
    "run",
    "suite",
]

T = TypeVar("T")

# Their checks are in the table once they are imported.
_SOURCES = (leasing, waiting, hazards, gates)


@dataclass(frozen=True, slots=True)
class Result:
    """How one check of one primitive with one API ended.

    Attributes:
        kind: The primitive.
        api: The API.
        check: The check.
        error: What went wrong, or None.
    """

    kind: str
    api: Api
    check: str
    error: BaseException | None

    def __str__(self) -> str:
        head = f"{self.kind} {self.api} {self.check}: "
        if self.error is None:
            return f"{head}kept"
        where = "" if isinstance(self.error, AssertionError) else f"\n{_trace(self.error)}"
        return f"{head}BROKEN: {CHECKS[self.check].promise}\n    {self.error!r}{where}"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def checks_of(entry: Entry) -> list[Check]:
    """The checks that apply to a primitive."""
    return [check for check in CHECKS.values() if check.applies(entry)]


def conduct(
    url: str,
    entry: Entry,
    api: Api,
    check: Check,
    nodes: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    keys: Callable[[str], Any] | None = None,
    backend: Backend | None = None,
) -> None:
    """Carry one check out.

    Args:
        url: The server, as ``redis://`` or ``unix://``.
        entry: The primitive.
        api: ``"threads"`` or ``"asyncio"``.
        check: The check.
        nodes: The servers behind the address, where it names several.
        options: What every client is connected with.
        keys: What stands for a name, see ``run``.
        backend: See ``run``.

    Raises:
        AssertionError: The promise is not kept.
        CannotShowError: The check cannot be carried out there.
    """

    async def whole() -> None:
        world = World(url, entry, api, nodes, options, keys, backend)
        try:
            await check.body(world)
        finally:
            await world.close()

    if api == "asyncio":
        asyncio.run(whole())
    else:
        drive(whole())


def run(
    url: str,
    kinds: Iterable[str] | None = None,
    apis: Sequence[Api] = APIS,
    *,
    only: Iterable[str] | None = None,
    parallel: int = 4,
    nodes: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    traits: Mapping[str, Any] | None = None,
    keys: Callable[[str], Any] | None = None,
    backend: Backend | None = None,
) -> list[Result]:
    """Carry out all checks of some primitives.

    Args:
        url: The server, as ``redis://`` or ``unix://``; it should hold nothing of value, though only keys of a name
            space of each check's own are written.
        kinds: Which primitives of the registry; None (default): all.
        apis: Which APIs; default both.
        only: Which checks, by name; None (default): all that apply.
        parallel: How many checks at one time; default 4: a check mostly waits, but more of them hold each other up in one
            interpreter.
        nodes: The servers behind the address, as ``redis://``, where it names Sentinels, a cluster or several masters.
            Checks that put themselves between client and server are left out then.
        options: What every client is connected with, beside the address.
        traits: What is different of the entries there, such as ``{"fifo": False}``.
        keys: What stands for a name, made of a text that is unique, such as ``pawlock.Key``; None: the name itself.
        backend: What does to a server of another kind than Redis what a client cannot: break, look, empty. Checks that
            it cannot serve are left out.

    Returns:
        A result for each.

    Raises:
        ConfigurationError: No such primitive or check.
    """
    entries = [replace(entry, **(traits or {})) for entry in _chosen(REGISTRY, kinds, "primitive")]
    named = {check.name for check in _chosen(CHECKS, only, "check")}
    work = [
        (entry, api, check)
        for entry in entries
        for api in apis
        for check in checks_of(entry)
        if check.name in named
    ]
    results: list[Result] = []
    for alone in (False, True):
        part = [item for item in work if item[2].alone is alone]
        with ThreadPoolExecutor(1 if alone else max(1, parallel)) as pool:
            done = pool.map(partial(_result, url, nodes, options, keys, backend), part)
            results += [result for result in done if not isinstance(result.error, CannotShowError)]
    return results


def _chosen(table: dict[str, T], names: Iterable[str] | None, what: str) -> list[T]:
    chosen = list(table) if names is None else list(names)
    unknown = sorted(set(chosen) - set(table))
    if unknown:
        raise ConfigurationError(f"no such {what}: {', '.join(unknown)}; there are {', '.join(table)}")
    return [table[name] for name in chosen]


def _result(
    url: str,
    nodes: Sequence[str] | None,
    options: Mapping[str, Any] | None,
    keys: Callable[[str], Any] | None,
    backend: Backend | None,
    item: tuple[Entry, Api, Check],
) -> Result:
    entry, api, check = item
    try:
        conduct(url, entry, api, check, nodes, options, keys, backend)
    except Exception as error:  # noqa: BLE001 - it is the result
        return Result(entry.kind, api, check.name, error)
    return Result(entry.kind, api, check.name, None)


def suite(
    url: str | Callable[[], str], kinds: Iterable[str] | None = None, apis: Sequence[Api] = APIS
) -> type:
    """A class of tests for pytest: one for each primitive, API and check.

    ``TestLocks = suite("redis://localhost:6379/15")`` in a test module is enough. Primitives of your own are registered
    above that line.

    Args:
        url: The server, or what gives its URL when the first test runs.
        kinds: Which primitives of the registry; None (default): all that are registered by now.
        apis: Which APIs; default both.

    Raises:
        ConfigurationError: No such primitive.
    """
    import pytest

    cases = [
        pytest.param(entry, api, check, id=f"{entry.kind}-{api}-{check.name}")
        for entry in _chosen(REGISTRY, kinds, "primitive")
        for api in apis
        for check in checks_of(entry)
    ]

    class TestConformance:
        """Each promise of each primitive, with each API."""

        @pytest.mark.parametrize(("entry", "api", "check"), cases)
        def test_promise(self, entry: Entry, api: Api, check: Check) -> None:
            """One promise."""
            conduct(url() if callable(url) else url, entry, api, check)

    return TestConformance


def broken(results: Iterable[Result]) -> str:
    """What is not kept, for a person to read."""
    return "\n".join(str(result) for result in results if result.error is not None)


def report(results: Iterable[Result]) -> Iterator[str]:
    """The results line by line, and at the end how many promises were kept."""
    broken = total = 0
    for result in results:
        total += 1
        broken += result.error is not None
        yield str(result)
    yield f"{total - broken} of {total} promises kept"


def main(arguments: Sequence[str]) -> int:
    """The command ``python -m tests.conformance.suite URL [KIND …]``.

    Args:
        arguments: Those of the command line.

    Returns:
        0 if every promise is kept, 1 if one is broken, 2 for a wrong call or a server that does not answer.
    """
    if not arguments or arguments[0].startswith("-"):
        print("usage: python -m tests.conformance.suite URL [KIND …]")
        print(f"KIND: {', '.join(REGISTRY)}")
        return 2
    log = logging.getLogger("pawlock")
    level = log.level
    # Checks break things on purpose; what pawlock logs of that is not news.
    log.setLevel(logging.CRITICAL)
    try:
        return _main(arguments)
    finally:
        log.setLevel(level)


def _main(arguments: Sequence[str]) -> int:
    try:
        # Hundreds of promises would each wait for a server that is not there.
        with pawlock.connect(arguments[0]) as client:
            client.inspect("conformance")
        results = run(arguments[0], arguments[1:] or None)
    except (pawlock.PawlockError, ValueError) as error:
        print(f"python -m tests.conformance.suite: {error}", file=sys.stderr)
        return 2
    for line in report(results):
        print(line)
    return 1 if any(result.error for result in results) else 0
