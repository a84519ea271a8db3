"""What a lock library must offer to take part."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Options: TypeAlias = Mapping[str, float]


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


Session: TypeAlias = Callable[[str], Handle]
"""One client, as a program would make it once and share it: gives a worker its handle of a name, once for each."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A library and how to open it in either API.

    Args:
        key: What scenarios call it.
        label: What the report calls it.
        modules: Must be importable; a peer that lacks one is named in the report and left out.
        distributions: Whose versions the report states.
        commands: What only the client sends, in lower case. Redis counts commands inside scripts under their own names,
            so a peer lists only names that its scripts do not use; their sum is the number of round trips.
        open: A client for threads.
        open_async: A client for tasks.
        program: The command of its process, for a library that is not in this environment; given the job as text.
        stated: Versions that are fixed where they are installed from.
        lacks: Why it cannot take part, where that is more than a module; may install what it needs.
    """

    key: str
    label: str
    modules: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    commands: frozenset[str] = frozenset({"evalsha", "eval"})
    open: Callable[[str, Options], Session] | None = None
    open_async: Callable[[str, Options], Awaitable[Session]] | None = None
    program: Callable[[str], list[str]] | None = None
    stated: Mapping[str, str] = field(default_factory=dict[str, str])
    lacks: Callable[[], str | None] | None = None

    def missing(self) -> str | None:
        """Return why this peer cannot take part, or None when it can."""
        if self.lacks is not None and (reason := self.lacks()) is not None:
            return f"{self.label}: {reason}"
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                return f"{self.label}: not installed (no module {module!r})"
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of the distributions behind this peer."""
        return {**self.stated, **{name: importlib.metadata.version(name) for name in self.distributions}}
