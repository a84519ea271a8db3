"""The time of one request: read once, so that nothing changes in the middle of a step."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Moment"]


class Moment(NamedTuple):
    """When a request is served.

    Attributes:
        us: The table's wall clock in µs: fencing tokens and the numbers of tickets come from it.
    """

    us: int

    @property
    def ms(self) -> int:
        """The same in whole ms: all expiries go by it."""
        return self.us // 1000
