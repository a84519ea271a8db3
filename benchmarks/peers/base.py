"""What a lock library must offer to take part."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# What the client sends itself. Redis counts commands inside scripts under their own names, so a peer lists
# only names that its scripts do not use; their sum is the number of round trips.
Options = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Handle:
    """One worker's view of one lock: `grant = acquire()`, then `release(grant)`.

    In the asyncio API both return awaitables. The functions are the library's own wherever that is
    possible, so that no adapter frame is measured.
    """

    acquire: Callable[[], Any]
    release: Callable[[Any], Any]
    fence: Callable[[Any], int] | None = None
    """Reads the fencing number of a grant; None for libraries that have none."""
    around: Callable[[], Any] | None = None
    """Takes what is held around a turn of one thread, with one command; `release` gives it back with another."""


class Session(Protocol):
    """One client of a library, as a program would make it once and share it between its threads."""

    def handle(self, name: str) -> Handle:
        """Return a worker's handle of the lock `name`; called once for each worker, in its own thread."""
        ...

    def close(self) -> None:
        """Close the client and its connections."""
        ...


class AsyncSession(Protocol):
    """The same, shared between the tasks of one event loop."""

    async def handle(self, name: str) -> Handle:
        """Return a worker's handle of the lock `name`."""
        ...

    async def close(self) -> None:
        """Close the client and its connections."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """A library and how to open it in either API."""

    key: str
    label: str
    modules: tuple[str, ...]
    """Modules that must be importable; a peer that lacks one is named in the report and left out."""
    distributions: tuple[str, ...]
    """Whose versions the report states."""
    commands: frozenset[str]
    """Command names that only the client sends (see above), in lower case."""
    open: Callable[[str, Options], Session] | None = None
    open_async: Callable[[str, Options], Awaitable[AsyncSession]] | None = None
    program: Callable[[str], list[str]] | None = None
    """The command of its process, for a library of another language; given the job as text."""
    warm_up: float = 0.2
    """Seconds of the real work before anything counts."""
    stated: Mapping[str, str] = field(default_factory=dict[str, str])
    """Versions that are fixed where they are installed from."""
    lacks: Callable[[], str | None] | None = None
    """Why it cannot take part, where that is more than a module; may install what it needs."""

    def missing(self) -> str | None:
        """Return why this peer cannot take part, or None when it can."""
        if self.lacks is not None and (reason := self.lacks()) is not None:
            return reason
        for module in self.modules:
            try:
                found = importlib.util.find_spec(module)
            except ModuleNotFoundError:
                found = None
            if found is None:
                return f"{self.label}: not installed (no module {module!r})"
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of the distributions behind this peer."""
        found = dict(self.stated)
        for name in self.distributions:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "from the working tree"
        return found
