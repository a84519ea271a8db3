"""The terminal of `pawlock top`: keys without Enter, an alternate screen, a table drawn by rich."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import termios
import time
import tty
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pawlock.cli._common import readable
from pawlock.cli._rows import COLUMNS, cells
from pawlock.cli._view import HELP, SHORT_HELP

if TYPE_CHECKING:
    from pawlock import LockInfo
    from pawlock.cli._view import View

__all__ = ["HEADS", "Screen", "fitting", "footer", "heading"]

_KEY = re.compile(r"\033\[[0-9;]*[A-Za-z~]|\033O[A-Z]|.", re.DOTALL)
_AROUND = 4
"""Lines that are no rows: what is held, the head of the table, the last line, and one for the cursor."""
_BAR = 10
_NAME = 40
_SHORT_NAME = 20
"""How much of a name is to be seen before the columns of little use, and before the others."""
HEADS = (*COLUMNS, "CONTENTION")
_LITTLE_USE = ("FENCE", "KIND", "CONTENTION")
_LEAST_FIRST = (*_LITTLE_USE, "AGE", "TTL LEFT", "HOLDER", "WAITERS")
_RIGHT = {"AGE", "TTL LEFT", "FENCE", "WAITERS"}
_LOW = 0.2


def fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Which columns to show, so that names can be read on a narrow terminal.

    Args:
        rows: The cells of the rows on the screen.
        width: Of the terminal.
    """
    widths = [max(len(head), *(len(row[at]) for row in rows), 0) for at, head in enumerate(HEADS)]
    longest = widths[0]
    kept = list(range(len(HEADS)))
    for head in _LEAST_FIRST:
        widths[0] = min(longest, _NAME if head in _LITTLE_USE else _SHORT_NAME)
        if sum(widths[at] + 1 for at in kept) <= width:
            break
        kept.remove(HEADS.index(head))
    return kept


def footer(view: View, width: int) -> str:
    """The last line: by what it is sorted, and the keys, in as many words as fit."""
    way = ", reversed" if view.reverse else ""
    wide = f"by {view.order}{way}   {HELP}"
    return wide if len(wide) <= width else f"by {view.order}{way}  {SHORT_HELP}"


def heading(view: View) -> str:
    """The first line: how much is held, how many wait, and which rows are on the screen if not all of them are."""
    waiting = sum(info.queue_length for info in view.infos)
    found = view.rows() if view.wanted else view.infos
    text = f"{len(view.infos)} held for 1 s or more   {waiting} waiting"
    if view.wanted:
        text += f"   {len(found)} match {readable(view.wanted)!r}"
    if len(found) > view.height:
        text += f"   rows {view.offset + 1}-{min(view.offset + view.height, len(found))}"
    return text


class Screen:
    """One terminal. Its `read` gives keys; `draw` shows a view."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._input = sys.stdin.fileno()
        self._before: list[Any] | None = None

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """Take the terminal over, and give it back as it was."""
        self._before = termios.tcgetattr(self._input)
        try:
            self.take()
            with self._live:
                yield
        finally:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def take(self) -> None:
        """Have keys come one by one; also after a Ctrl-Z, when a shell has set the terminal up for itself."""
        tty.setcbreak(self._input, termios.TCSADRAIN)

    def resume(self) -> None:
        """Continue after a Ctrl-Z: the shell has used the screen meanwhile."""
        self.take()
        self._console.set_alt_screen(True)

    def fileno(self) -> int:
        """Let `select` wait for keys."""
        return self._input

    def read(self) -> list[str] | None:
        """The keys that were pressed; None when the terminal is gone."""
        try:
            data = os.read(self._input, 1024)
        except OSError:
            return None
        return _KEY.findall(data.decode(errors="replace")) if data else None

    def draw(self, view: View, status: str) -> None:
        """Show it as it is now.

        Args:
            view: What to show.
            status: What is wrong, for the last line; "" for nothing.
        """
        view.height = max(1, self._console.size.height - _AROUND)
        rows = view.shown()
        parts: list[Text | Table] = [self._head(view), self._table(view, rows), self._footer(view, status)]
        self._live.update(Group(*parts), refresh=True)

    @staticmethod
    def _head(view: View) -> Text:
        text = f"pawlock top  {time.strftime('%H:%M:%S')}   {heading(view)}"
        return Text(text, style="bold", no_wrap=True, overflow="ellipsis")

    def _table(self, view: View, rows: list[LockInfo]) -> Table:
        most = max((view.contention.of(info) for info in rows), default=0.0)
        lines = [[*_coloured(info), _bar(view.contention.of(info), most)] for info in rows]
        table = Table(box=None, padding=(0, 1, 0, 0), expand=True, header_style="reverse")
        kept = fitting([[text.plain for text in line] for line in lines], self._console.size.width)
        for at in kept:
            justify: Any = "right" if HEADS[at] in _RIGHT else "left"
            ratio = 1 if at == 0 else None
            table.add_column(HEADS[at], justify=justify, no_wrap=True, overflow="ellipsis", ratio=ratio)
        for line in lines:
            table.add_row(*(line[at] for at in kept))
        return table

    def _footer(self, view: View, status: str) -> Text:
        if status:
            return Text(status, style="bold red", no_wrap=True, overflow="ellipsis")
        if view.typing:
            return Text(f"/{view.wanted}_   Enter applies, Esc clears", no_wrap=True, overflow="ellipsis")
        return Text(footer(view, self._console.size.width), style="dim", no_wrap=True, overflow="ellipsis")


def _coloured(info: LockInfo) -> list[Text]:
    texts = [Text(cell) for cell in cells(info)]
    if info.queue_length:
        texts[-1].stylize("yellow")
    age = time.time() - info.since if info.since else 0.0
    if info.ttl_left < _LOW * (age + info.ttl_left) and info.ttl_left < 1:
        texts[4].stylize("red")
    return texts


def _bar(value: float, most: float) -> Text:
    if value <= 0:
        return Text("")
    length = max(1, round(value / most * _BAR)) if most else 0
    return Text(f"{'█' * length} {value:.1f}", style="yellow")
