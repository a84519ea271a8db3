"""What several integrations ask of their arguments: names whose fields are filled, and clients of asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from string import Formatter
from typing import Any

import pawlock

__all__ = ["check_client", "filled", "one_text", "plain"]

_NO_TRAPS = Context(traps=[])
"""Rounds to 28 digits: of two numbers that differ in later ones, the second waits for the first."""


class _Fields(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        text: str = super().format_field(value, format_spec)
        if text == object.__repr__(value):
            # It ends with its address: another lock for each object, which excludes nobody.
            raise pawlock.ConfigurationError(f"a {type(value).__name__} has no text of its own for a field")
        return text


def one_text(value: Any) -> Any:
    """Of equal numbers or times that differ in their text, such as 7.0 and 7.00, always the same one."""
    if isinstance(value, float):
        return value + 0.0  # -0.0 is 0.0
    if isinstance(value, Decimal):
        value = _NO_TRAPS.add(value, Decimal(0))
        whole = _NO_TRAPS.quantize(value, Decimal(1))  # 100, where the other way says 1E+2
        return whole if whole == value else _NO_TRAPS.normalize(value)
    if isinstance(value, time) and value.utcoffset() is not None:
        return _in_utc(datetime.combine(date(2000, 1, 2), value)).timetz()
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return _in_utc(value)
    return value


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # all that are beyond the calendar there may share a name: they wait for each other
        return datetime.max.replace(tzinfo=UTC)


def filled(name: str, values: Mapping[str, Any], source: str) -> str:
    """The name with its fields filled, as what a client takes for exactly that name.

    Args:
        name: The name with fields, as in ``"order:{id}"``.
        values: What fills them.
        source: Where the values come from, for the error.

    Raises:
        ConfigurationError: A field has no value, or one without a text.
    """
    try:
        return plain(_Fields().vformat(name, (), values))
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        if isinstance(error, pawlock.ConfigurationError):
            raise
        known = ", ".join(values) or "none"
        raise pawlock.ConfigurationError(f"name {name!r} asks for {error}; {source}: {known}") from error


def plain(name: str) -> str:
    """The name as what a client takes for exactly it: each brace doubled."""
    return name.replace("{", "{{").replace("}", "}}")


def check_client(client: object) -> None:
    """Refuse what is no client of asyncio.

    Raises:
        ConfigurationError: It is another object.
    """
    if not isinstance(client, pawlock.AsyncClient):
        raise pawlock.ConfigurationError(
            f"client must be an AsyncClient (pawlock.connect_async), got {type(client).__name__}"
        )
