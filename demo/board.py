"""What the viewer sees: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from demo.crew import Member

__all__ = ["Board", "Row", "make_board"]

_LINE_EVERY = 1.0

Row: TypeAlias = tuple[str, str, str, bool]
"""A line of the verdict: what is asked, what should be, what is, whether that is right."""


class Board(Protocol):
    """How the demo shows itself."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def title(self, text: str) -> None:
        """Begin a part."""

    def say(self, text: str, *, loud: bool = False) -> None:
        """Write a line that stays."""

    def show(self, members: Iterable[Member], note: str) -> None:
        """Show how the workers stand; may be called often."""

    def rest(self) -> None:
        """End the part: nothing moves any more."""

    def verdict(self, rows: Sequence[Row]) -> None:
        """Show what came out."""


def make_board(*, plain: bool) -> Board:
    """Return the board for this output: the live one only on a terminal, and where rich is installed."""
    if not plain:
        try:
            from demo.live import LiveBoard
        except ImportError:
            return PlainBoard(print)
        return LiveBoard()
    return PlainBoard(print)


class PlainBoard:
    """Lines only: for logs, pipes and `--plain`."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._shown = 0.0
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def title(self, text: str) -> None:
        """Begin a part."""
        self._write(f"\n{text}\n{'-' * len(text)}")

    def say(self, text: str, *, loud: bool = False) -> None:
        """Write a line."""
        self._write(f"  {'! ' if loud else ''}{text}")

    def show(self, members: Iterable[Member], note: str) -> None:
        """Write a line once a second."""
        counts = "  ".join(f"w{member.number} {member.sold + member.refused:3d}" for member in members)
        self._last = f"{counts}   {note}"
        if time.monotonic() - self._shown >= _LINE_EVERY:
            self._shown = time.monotonic()
            self.say(self._last)

    def rest(self) -> None:
        """Write how it ended."""
        if self._last:
            self.say(self._last)
        self._last = ""

    def verdict(self, rows: Sequence[Row]) -> None:
        """Write a table in columns."""
        head: Row = ("", "should be", "is", True)
        widths = [max(len(row[n]) for row in (head, *rows)) for n in (0, 1, 2)]  # type: ignore[arg-type]
        for row in (head, *rows):
            cells = "  ".join(f"{row[n]:<{widths[n]}}" for n in (0, 1, 2))
            self.say(cells + ("" if row is head else ("  ok" if row[3] else "  WRONG")))
