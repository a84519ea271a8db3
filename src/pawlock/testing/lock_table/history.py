"""The history of one name: its last grants, and how they ended, as clients record them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pawlock.core.protocol.outcomes import Noted, Texts

if TYPE_CHECKING:
    from pawlock.testing.lock_table.clock import Moment
    from pawlock.testing.lock_table.mail import Mail
    from pawlock.testing.lock_table.requests import Recall, Remember

__all__ = ["History"]

_UNKNOWN = "0"
"""The fence of a line about the grant that any client recorded with its tag."""


class _Entry(NamedTuple):
    fence: int
    tag: str
    granted: str
    how: str
    text: str


class History:
    """The state of one name's history. A step begins with ``settle``."""

    __slots__ = ("_entries", "_until_ms")

    def __init__(self) -> None:
        # By fence and tag, which tells several holds of one grant apart.
        self._entries: dict[tuple[int, str], _Entry] = {}
        self._until_ms: int = 0

    def settle(self, now: Moment) -> None:
        """Forget what is over."""
        if self._until_ms < now.ms:
            self._entries = {}

    def is_idle(self, now: Moment) -> bool:  # noqa: ARG002
        """Whether nothing is left that anybody could ask for."""
        return not self._entries

    def expiries(self) -> dict[str, int]:
        """When each part of it is over, in ms of the table's clock: for tests that look from outside."""
        return {f"grant {fence} {tag}": self._until_ms for fence, tag in self._entries}

    def remember(self, ask: Remember, now: Moment, mail: Mail) -> Noted:  # noqa: ARG002
        """See ``Remember``: an entry is replaced only by one that knows more, so a late copy changes nothing."""
        for line in ask.lines.splitlines():
            fence, granted, ended, how, kind, tag, who = line.split(" ", 6)
            self._note(fence, _at(granted, now), _at(ended, now), how, f"{kind} {tag} {who}", tag)
        self._until_ms = max(self._until_ms, now.ms + ask.life_ms)
        newest = sorted(self._entries)[-ask.limit :]
        self._entries = {key: self._entries[key] for key in newest}
        return Noted(now.ms)

    def _note(self, fence: str, granted: str, ended: str, how: str, rest: str, tag: str) -> None:
        if fence == _UNKNOWN:
            known = max((one for one in self._entries.values() if one.tag == tag), default=None)
            if known is None:
                return
            number, granted = known.fence, known.granted
        else:
            number = int(fence)
            known = self._entries.get((number, tag))
        if known is None or _weight(known.how) < _weight(how):
            text = f"{number} {granted} {ended} {how} {rest}"
            self._entries[number, tag] = _Entry(number, tag, granted, how, text)

    def recall(self, ask: Recall, now: Moment, mail: Mail) -> Texts:  # noqa: ARG002
        """See ``Recall``."""
        return Texts(now.ms, [self._entries[key].text for key in sorted(self._entries)[-ask.limit :]])


def _at(ago: str, now: Moment) -> str:
    return ago if ago == "-" else str(now.ms - int(ago))


def _weight(how: str) -> int:
    """How much an end says: that it is still held, that it was released, that it was lost."""
    return {"held": 0, "released": 1}.get(how, 2)
