"""A default that means "not given", where None means something."""

from __future__ import annotations

__all__ = ["UNSET", "Unset"]


class Unset:
    """Marks "not given" where None means something."""


UNSET = Unset()
