"""What clients publish about themselves in one namespace: their sessions, grants that were taken, the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.protocol.outcomes import Listed, Noted, Published, Tags, Texts
from pawlock.testing.lock_table.mail import ASK_AGAIN, Mail, Message

if TYPE_CHECKING:
    from pawlock.testing.lock_table.clock import Moment
    from pawlock.testing.lock_table.requests import (
        Drop,
        Find,
        NoteLine,
        NoteTaken,
        Publish,
        Read,
        ReadLines,
        ReadTaken,
        Tell,
    )

__all__ = ["Sessions"]

_OVER = (0, 0)


class Sessions:
    """The state of one namespace, and the steps that change it. A step begins with ``settle``."""

    __slots__ = ("_lines", "_lines_until_ms", "_records", "_taken")

    def __init__(self) -> None:
        # By session: the number of its record, what it says, until when.
        self._records: dict[str, tuple[int, str, int]] = {}
        self._taken: dict[str, int] = {}
        # By their ids, the newest last.
        self._lines: dict[str, str] = {}
        self._lines_until_ms: int = 0

    def settle(self, now: Moment) -> None:
        """Forget what is over."""
        self._records = {session: one for session, one in self._records.items() if one[2] >= now.ms}
        self._taken = {tag: until_ms for tag, until_ms in self._taken.items() if until_ms >= now.ms}
        if self._lines_until_ms < now.ms:
            self._lines = {}

    def is_idle(self, now: Moment) -> bool:  # noqa: ARG002
        """Whether nothing is left that anybody could ask for."""
        return not (self._records or self._taken or self._lines)

    def expiries(self) -> dict[str, int]:
        """When each part of it is over, in ms of the table's clock: for tests that look from outside."""
        parts = {f"session {session}": one[2] for session, one in self._records.items()}
        parts.update({f"taken {tag}": until_ms for tag, until_ms in self._taken.items()})
        parts.update({f"line {line}": self._lines_until_ms for line in self._lines})
        return parts

    # Steps ------------------------------------------------------------------------------------------------------

    def publish(self, ask: Publish, now: Moment, mail: Mail) -> Published:  # noqa: ARG002
        """See ``Publish``."""
        before = self._records.get(ask.session)
        if before is None or before[0] < ask.number:
            text = f"{now.ms} {ask.number} {ask.data}"
            self._records[ask.session] = ask.number, text, now.ms + ask.life_ms
        return Published(now.ms, list(self._taken))

    def drop(self, ask: Drop, now: Moment, mail: Mail) -> Noted:  # noqa: ARG002
        """See ``Drop``."""
        self._records.pop(ask.session, None)
        return Noted(now.ms)

    def find(self, ask: Find, now: Moment, mail: Mail) -> Listed:  # noqa: ARG002
        """See ``Find``."""
        found = sorted(one for one in self._records if one.startswith(ask.prefix) and one > ask.after)
        found = found[: ask.limit]
        return Listed(now.ms, found, found[-1] if found else "")

    def read(self, ask: Read, now: Moment, mail: Mail) -> Texts:  # noqa: ARG002
        """See ``Read``."""
        return Texts(now.ms, [self._records.get(session, (0, "", 0))[1] for session in ask.sessions])

    def tell(self, ask: Tell, now: Moment, mail: Mail) -> Noted:
        """See ``Tell``."""
        mail.append(Message(ask.channel, ask.token, *(_OVER if ask.over else ASK_AGAIN)))
        return Noted(now.ms)

    def note_taken(self, ask: NoteTaken, now: Moment, mail: Mail) -> Noted:  # noqa: ARG002
        """See ``NoteTaken``."""
        self._taken[ask.tag] = now.ms + ask.life_ms
        return Noted(now.ms)

    def read_taken(self, ask: ReadTaken, now: Moment, mail: Mail) -> Tags:  # noqa: ARG002
        """See ``ReadTaken``."""
        return Tags(now.ms, list(self._taken))

    def note_line(self, ask: NoteLine, now: Moment, mail: Mail) -> Noted:  # noqa: ARG002
        """See ``NoteLine``."""
        if ask.line not in self._lines:
            self._lines[ask.line] = f"{now.ms} {ask.line} {ask.data}"
            for line in list(self._lines)[: -ask.limit]:
                del self._lines[line]
            self._lines_until_ms = now.ms + ask.life_ms
        return Noted(now.ms)

    def read_lines(self, ask: ReadLines, now: Moment, mail: Mail) -> Texts:  # noqa: ARG002
        """See ``ReadLines``."""
        return Texts(now.ms, list(reversed(self._lines.values()))[: ask.limit])
