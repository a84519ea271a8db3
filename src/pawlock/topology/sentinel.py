"""Who is the master, by what several Sentinels say: pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pawlock.topology.cluster import text_of

__all__ = ["View", "choose", "enough", "fields_of", "read_switch", "read_view"]


class View(NamedTuple):
    """What one Sentinel says of a service.

    Attributes:
        host: Where the master is.
        port: Its port.
        epoch: The version of the configuration: each failover raises it.
    """

    host: str
    port: int
    epoch: int


def read_view(reply: Any) -> View:
    """The answer to ``SENTINEL MASTER``.

    Raises:
        ValueError: It is no such answer.
    """
    fields = fields_of(reply)
    try:
        return View(fields["ip"], int(fields["port"]), int(fields.get("config-epoch", "0")))
    except KeyError as missing:
        raise ValueError(f"a Sentinel's answer without {missing}") from None


def fields_of(reply: Any) -> dict[str, str]:
    """A map, or a list of fields and values, as it came before RESP3."""
    pairs = reply.items() if hasattr(reply, "items") else zip(reply[::2], reply[1::2], strict=False)
    return {text_of(key): text_of(value) for key, value in pairs}


def choose(views: Iterable[View]) -> View:
    """The master: what the newest configuration says. A Sentinel cut off from the others still has an older one."""
    return max(views, key=lambda view: view.epoch)


def enough(views: int, sentinels: int) -> bool:
    """Whether so many views suffice: a failover is agreed on by a majority, so any majority has heard of it."""
    return views > sentinels // 2


def read_switch(message: bytes, service: str) -> bool:
    """Whether a ``+switch-master`` message is about this service."""
    return message.split(b" ", 1)[0].decode(errors="replace") == service
