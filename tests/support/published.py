"""Which script a request runs, by the texts that docs/wire/scripts.json publishes."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.proxy import Request
from tests.support.scripts import published
from tests.support.servers import Server

__all__ = ["runs", "teach"]


def teach(server: Server, *names: str) -> None:
    """Load some scripts, so that the n-th request of a kind is the n-th that a test thinks of."""
    for name in names:
        server.command("SCRIPT", "LOAD", published(name).source)


def runs(*names: str) -> Callable[[Request], bool]:
    """Requests that run one of these scripts, by hash or by text."""
    words = {word for name in names for word in (published(name).sha.encode(), published(name).source)}
    return lambda request: request.command in {"EVALSHA", "EVAL"} and request.args[1] in words
