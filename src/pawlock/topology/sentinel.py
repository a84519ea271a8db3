"""Who is the master, by what several Sentinels say: pure."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["View", "fields_of", "read_view"]


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
    return {_text(key): _text(value) for key, value in pairs}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
