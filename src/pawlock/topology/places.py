"""Servers in this process, which tests open and close."""

from __future__ import annotations

from pawlock.errors import ConfigurationError
from pawlock.topology.credentials import Credentials
from pawlock.topology.endpoint import Place

__all__ = ["PLACES", "place_of"]

PLACES: dict[str, Place] = {}
"""Those that are open, by address."""


def place_of(url: str, credentials: Credentials) -> Place:
    """The place of a ``memory://`` address.

    Raises:
        ConfigurationError: None is open there, or credentials were given.
    """
    place = PLACES.get(url)
    if place is None:
        raise ConfigurationError(f"{url!r:.60} is not a server in this process: create a pawlock.testing.Sim")
    if credentials:
        raise ConfigurationError("a server in memory takes no credentials: remove them")
    return place
