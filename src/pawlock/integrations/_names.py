"""What several integrations ask of their arguments: names whose fields are filled, and clients of asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

import pawlock

__all__ = ["check_client", "filled", "plain"]

_FIELDS = Formatter()


def filled(name: str, values: Mapping[str, Any], source: str) -> str:
    """The name with its fields filled, as what a client takes for exactly that name.

    Args:
        name: The name with fields, as in ``"order:{id}"``.
        values: What fills them.
        source: Where the values come from, for the error.

    Raises:
        ConfigurationError: A field has no value.
    """
    try:
        return plain(_FIELDS.vformat(name, (), values))
    except (KeyError, IndexError, AttributeError, ValueError) as error:
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
