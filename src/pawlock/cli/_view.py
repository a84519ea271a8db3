"""What `pawlock top` shows and how keys change it: no terminal, no thread, no server."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pawlock.cli._common import chosen
from pawlock.cli._rows import ORDERS

if TYPE_CHECKING:
    from pawlock import LockInfo

__all__ = ["HELP", "KEYS", "SHORT_HELP", "Contention", "View"]

_REMEMBER = 60
HELP = (
    "sort: n name  a age  t TTL  w waiters  c contention  h holder   r reverse   / filter   j k move   q quit"
)
SHORT_HELP = "sort n a t w c h  r reverse  / filter  j k move  q quit"
"""For a terminal of 80 columns."""
KEYS = {"n": "name", "a": "age", "t": "ttl", "w": "waiters", "c": "contention", "h": "holder"}
_UP, _DOWN, _PAGE_UP, _PAGE_DOWN = "\033[A", "\033[B", "\033[5~", "\033[6~"
_BACKSPACE = ("\x7f", "\x08")


class Contention:
    """How many waited for each name on average, over the last 60 refreshes."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[int]] = {}

    def note(self, infos: Sequence[LockInfo]) -> None:
        """Count one refresh; a name that is not held any more is forgotten."""
        seen: dict[tuple[str, str], deque[int]] = {}
        for info in infos:
            key = info.name, info.kind
            lengths = self._seen.get(key) or deque[int](maxlen=_REMEMBER)
            lengths.append(info.queue_length)
            seen[key] = lengths
        self._seen = seen

    def of(self, info: LockInfo) -> float:
        """The average length of its queue."""
        lengths = self._seen.get((info.name, info.kind))
        return sum(lengths) / len(lengths) if lengths else float(info.queue_length)


@dataclass
class View:
    """What is on the screen.

    Attributes:
        order: By what it is sorted.
        reverse: Whether in reverse order.
        wanted: The filter.
        typing: Whether keys go into the filter now.
        offset: How many rows are above the screen.
        height: How many rows fit on it.
        contention: What was seen so far.
        infos: What was seen last.
    """

    order: str = "waiters"
    reverse: bool = False
    wanted: str = ""
    typing: bool = False
    offset: int = 0
    height: int = 20
    contention: Contention = field(default_factory=Contention)
    infos: Sequence[LockInfo] = ()

    def update(self, infos: Sequence[LockInfo]) -> None:
        """Take what is held now."""
        self.infos = infos
        self.contention.note(infos)

    def rows(self) -> list[LockInfo]:
        """All records that are wanted, in order."""
        found = (
            [info for info in self.infos if chosen(info, self.wanted)] if self.wanted else list(self.infos)
        )
        if self.order == "contention":
            # The numbers of one refresh, so that names with equal contention do not dance.
            found.sort(
                key=lambda info: (-self.contention.of(info), info.name, info.kind), reverse=self.reverse
            )
        else:
            by = ORDERS[self.order]
            found.sort(key=lambda info: (by(info), info.name, info.kind), reverse=self.reverse)
        return found

    def shown(self) -> list[LockInfo]:
        """The records on the screen."""
        rows = self.rows()
        self.offset = max(0, min(self.offset, len(rows) - self.height))
        return rows[self.offset : self.offset + self.height]

    def press(self, key: str) -> bool:
        """Do what a key stands for.

        Args:
            key: One character, or the sequence of a key such as an arrow.

        Returns:
            True if it ends the display.
        """
        if self.typing:
            self._type(key)
        elif key in ("q", "Q"):
            return True
        elif key in KEYS:
            self.order, self.offset = KEYS[key], 0
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "/":
            self.typing = True
        elif key == "\033":
            self.wanted = ""
        else:
            self._move(key)
        return False

    def _type(self, key: str) -> None:
        if key in ("\r", "\n"):
            self.typing = False
        elif key == "\033":
            self.typing, self.wanted = False, ""
        elif key in _BACKSPACE:
            self.wanted = self.wanted[:-1]
        elif len(key) == 1 and key.isprintable():
            self.wanted += key
        self.offset = 0

    def _move(self, key: str) -> None:
        steps = {
            "j": 1,
            _DOWN: 1,
            "k": -1,
            _UP: -1,
            _PAGE_DOWN: self.height,
            " ": self.height,
            _PAGE_UP: -self.height,
        }
        self.offset = max(0, self.offset + steps.get(key, 0))
