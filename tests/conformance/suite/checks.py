"""The table of checks, and what puts a check into it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from pawlock.primitives.registry import Entry
from tests.conformance.suite.world import World

__all__ = ["CHECKS", "Body", "Check", "check", "expect", "expect_error"]


class Body(Protocol):
    """What a check does."""

    __name__: str

    def __call__(self, world: World) -> Coroutine[Any, Any, None]:
        """Show the promise; raise what was found otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and how it is shown.

    Attributes:
        name: Its name.
        promise: What is promised, in one sentence.
        body: Shows it; raises what it found otherwise.
        applies: Whether a primitive makes that promise.
        alone: Whether nothing else may run on the server meanwhile.
    """

    name: str
    promise: str
    body: Body
    applies: Callable[[Entry], bool]
    alone: bool = False


CHECKS: dict[str, Check] = {}
"""All checks, by name."""


def check(applies: Callable[[Entry], bool], *, alone: bool = False) -> Callable[[Body], Body]:
    """Put a check into the table; its docstring is the promise."""

    def keep(body: Body) -> Body:
        name = body.__name__
        CHECKS[name] = Check(name, " ".join((body.__doc__ or "").split()), body, applies, alone)
        return body

    return keep


def expect(condition: object, what: str) -> None:
    """Fail unless a condition holds.

    Raises:
        AssertionError: It does not; says what was expected.
    """
    if not condition:
        raise AssertionError(f"expected: {what}")


async def expect_error(
    kind: type[BaseException], call: Callable[[], Coroutine[Any, Any, Any]], what: str
) -> Any:
    """The error that a call must raise.

    Raises:
        AssertionError: It raised none.
    """
    try:
        brought = await call()
    except kind as error:
        return error
    raise AssertionError(f"expected: {what} raises {kind.__name__}; it brought {brought!r}")
