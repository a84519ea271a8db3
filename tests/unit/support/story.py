"""Histories made by hand, in few words."""

from __future__ import annotations

from typing import Any

from tests.support.history import History, Mode


class Story:
    """A history in which instants are small numbers."""

    def __init__(self) -> None:
        self.history = History()

    def take(
        self,
        who: str,
        start: float,
        end: float | None,
        fence: int | None = None,
        *,
        until: float = 1e6,
        how: str = "ok",
        queued: float | None = None,
        name: str = "n",
        **what: Any,
    ) -> str:
        """Acquire between two instants; None is the end of what never ended."""
        lease = self.history.invoke(start, who, "acquire", name, **what)
        if queued is not None:
            self.history.queued(queued, lease)
        if end is not None:
            self._end(lease, end, how, fence=fence, deadline=until)
        return lease

    def give(
        self, lease: str, start: float, end: float | None, how: str = "ok", action: str = "release"
    ) -> str:
        """Release (or downgrade) between two instants."""
        taken = self.history.operations[lease]
        identity = self.history.invoke(start, taken.process, action, taken.name, lease=lease)
        if end is not None:
            self._end(identity, end, how)
        return identity

    def write(self, lease: str, start: float, end: float, fence: int, how: str = "ok") -> None:
        """Write to the protected resource."""
        taken = self.history.operations[lease]
        identity = self.history.invoke(start, taken.process, "write", taken.name, lease=lease, fence=fence)
        self._end(identity, end, how)

    def hold(self, who: str, start: float, end: float, fence: int | None = None, **what: Any) -> str:
        """Acquire at an instant, release at another."""
        lease = self.take(who, start - 0.1, start, fence, **what)
        self.give(lease, end, end + 0.1)
        return lease

    def _end(self, identity: str, at: float, how: str, **values: Any) -> None:
        if how == "ok":
            self.history.ok(at, identity, **values)
        elif how == "fail":
            self.history.fail(at, identity)
        else:
            self.history.info(at, identity)


def reader(**what: object) -> dict[str, Any]:
    """What a reader asks for."""
    return {"mode": Mode.SHARED, **what}


def permits(count: int, limit: int) -> dict[str, Any]:
    """What somebody asks for who wants some permits."""
    return {"mode": Mode.PERMITS, "permits": count, "limit": limit}
