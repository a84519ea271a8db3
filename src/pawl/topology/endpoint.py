"""Where a node is and how to get in: a plain record, made from a URL or taken from a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Endpoint"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one node.

    Attributes:
        scheme: ``redis``, ``rediss`` or ``unix``.
        shown: The address as it may be printed: without credentials.
        settings: What a connection of redis-py is made with: host, port, path, db, username, password, TLS.
    """

    scheme: str
    shown: str
    settings: Mapping[str, Any] = field(repr=False)
