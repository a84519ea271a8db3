"""A default that means "not given", where None means something."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

__all__ = ["UNSET", "Unset"]


class Unset(Enum):
    """Marks "not given" where None means something. Its one member is known to type checkers by ``is``."""

    UNSET = "not given"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final[Literal[Unset.UNSET]] = Unset.UNSET
