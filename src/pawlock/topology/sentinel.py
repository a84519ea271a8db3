"""Who is the master, by what several Sentinels say: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

__all__ = ["View", "choose", "fields_of", "read_view"]


class View(NamedTuple):
    """What one Sentinel says of a service.

    Attributes:
        host: Where the master is.
        port: Its port.
        epoch: The version of the configuration: each failover raises it.
        moving: Whether it conducts a failover: until all replicas follow, it has the new epoch and the old master.
    """

    host: str
    port: int
    epoch: int
    moving: bool = False


def read_view(reply: Any) -> View:
    """The answer to ``SENTINEL MASTER``.

    Raises:
        ValueError: It is no such answer.
    """
    fields = fields_of(reply)
    try:
        moving = "failover_in_progress" in fields.get("flags", "")
        return View(fields["ip"], int(fields["port"]), int(fields.get("config-epoch", "0")), moving)
    except KeyError as missing:
        raise ValueError(f"a Sentinel's answer without {missing}") from None


def choose(views: Collection[View]) -> tuple[View, int]:
    """Whom to believe, and how many say the same.

    That is most of them: whom the others do not reach may say anything, be it of an epoch that an operator has ended.
    Where two have as many, the newer configuration.
    """
    votes = Counter((view.host, view.port) for view in views)
    view = max(views, key=lambda view: (votes[view.host, view.port], view.epoch, not view.moving))
    return view, votes[view.host, view.port]


def fields_of(reply: Any) -> dict[str, str]:
    """A map, or a list of fields and values, as it came before RESP3."""
    pairs = reply.items() if hasattr(reply, "items") else zip(reply[::2], reply[1::2], strict=False)
    return {_text(key): _text(value) for key, value in pairs}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
