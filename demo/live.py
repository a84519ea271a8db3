"""The board on a terminal, with rich."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from demo.board import Row
from demo.crew import Member

_STYLES = {
    "holds": "bold green",
    "sells": "green",
    "killed": "bold red",
    "stopped": "bold red",
    "done": "dim",
    "waiting": "yellow",
}


class LiveBoard:
    """A table that moves while the workers work; what it ended on stays on the screen."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()

    def title(self, text: str) -> None:
        """Begin a part."""
        self._console.print()
        self._console.print(Rule(f"[bold]{escape(text)}", align="left"))

    def say(self, text: str, *, loud: bool = False) -> None:
        """Write a line above the table."""
        self._console.print(Text(f"  {text}", style="bold red" if loud else ""))

    def show(self, members: Iterable[Member], note: str) -> None:
        """Redraw the table, at most ten times a second."""
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=10, auto_refresh=False)
            self._live.start()
        self._live.update(Group(_table(members), Text(f"  {note}", style="cyan")), refresh=True)

    def rest(self) -> None:
        """Let the table stay as it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def verdict(self, rows: Sequence[Row]) -> None:
        """Show a table of right and wrong."""
        table = Table(box=None, padding=(0, 2))
        for name in ("", "should be", "is", ""):
            table.add_column(name)
        for what, wanted, found, right in rows:
            mark = Text("ok", style="bold green") if right else Text("WRONG", style="bold red")
            table.add_row(what, wanted, Text(found, style="green" if right else "red"), mark)
        self._console.print(table)


def _table(members: Iterable[Member]) -> Table:
    table = Table(box=None, padding=(0, 2))
    table.add_column("worker")
    table.add_column("pid", justify="right")
    for name in ("sold", "refused", "last fence"):
        table.add_column(name, justify="right")
    table.add_column("state")
    for member in members:
        table.add_row(
            f"w{member.number}",
            str(member.process.pid),
            str(member.sold),
            str(member.refused),
            str(member.fence) if member.fence else "none",
            Text(member.state, style=_STYLES.get(member.state, "")),
        )
    return table
