"""What a check does to the server behind the clients' backs: break what is sent, look at what is kept, empty it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import redis

from tests.support._rules import Match, Request, Rule
from tests.support.proxy import Proxy

__all__ = ["Backend", "CannotShowError", "Faulty", "NeedsOneServerError", "RedisBackend"]


class CannotShowError(Exception):
    """A check cannot be carried out with this server."""


class NeedsOneServerError(CannotShowError):
    """A check puts itself between client and server, and there are several servers."""


class Faulty(Protocol):
    """A way to the server on which things go wrong; see ``Proxy``, of which this is what checks use."""

    @property
    def url(self) -> str:
        """What a client is connected with."""
        ...

    def requests(self, match: Match = None) -> list[Request]:
        """The requests that came so far."""
        ...

    def drop_request(self, match: Match = None, *, times: int | None = 1) -> Rule:
        """Lose a request."""
        ...

    def hold_request(self, match: Match = None, *, seconds: float, times: int | None = 1) -> Rule:
        """Deliver a request late."""
        ...

    def duplicate_request(self, match: Match = None, *, times: int | None = 1) -> Rule:
        """Have a request carried out twice."""
        ...

    def swallow_reply(self, match: Match = None, *, times: int | None = 1) -> Rule:
        """Lose an answer."""
        ...

    def kill_on_reply(self, match: Match = None, *, times: int | None = 1) -> Rule:
        """Break the connection in place of an answer."""
        ...

    def hold_reply(self, match: Match = None, *, seconds: float, times: int | None = 1) -> Rule:
        """Deliver an answer late."""
        ...

    def cut_push(self, match: Match = None, *, times: int | None = None) -> Rule:
        """Lose wake-ups."""
        ...

    def delay(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """Make everything slow."""
        ...

    def blackhole(self, *, on: bool = True) -> None:
        """Carry nothing."""
        ...

    def clear(self) -> None:
        """Let everything work again."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Backend(Protocol):
    """The server, or servers, of one check. A namespace says which of its names are meant.

    Attributes:
        shortest: The shortest life, in seconds, that a lease or a ticket can have there.
        slack: Within how many seconds after its end the server takes away what was not renewed, and whoever waits has it.
    """

    shortest: float
    slack: float

    def faulty(self) -> Faulty:
        """A way to the server on which things go wrong.

        Raises:
            CannotShowError: There is none.
        """
        ...

    def is_about(self, request: Request, namespace: str) -> bool:
        """Whether a request on such a way asks for something about a name of the namespace."""
        ...

    def stored(self, namespace: str) -> list[str]:
        """What is kept there, one word for each part, without tombstones."""
        ...

    def picture(self, namespace: str) -> Mapping[str, Any]:
        """The same with what is in it: another one after each change."""
        ...

    def queued(self, namespace: str) -> frozenset[object]:
        """Who stands in its queues."""
        ...

    def without_ttl(self, namespace: str) -> list[str]:
        """What of it would stay indefinitely."""
        ...

    def wipe(self, namespace: str) -> None:
        """Delete it, as an administrator would."""
        ...

    def forget_scripts(self) -> None:
        """Have every server forget every script.

        Raises:
            CannotShowError: It has none.
        """
        ...

    def uptime(self) -> int:
        """For how many seconds the server has run, or the youngest of several."""
        ...

    def close(self) -> None:
        """Disconnect from the servers."""
        ...


class RedisBackend:
    """See ``Backend``.

    Args:
        url: The server, as ``redis://`` or ``unix://``.
        nodes: The servers behind the address, where it names several; None: it is one.
    """

    shortest = 0.0
    slack = 1.0

    def __init__(self, url: str, nodes: Sequence[str] | None = None) -> None:
        self._url = url
        self._several = nodes is not None
        self._raw: list[Any] = [cast("Any", redis.Redis).from_url(node) for node in nodes or [url]]

    def faulty(self) -> Faulty:
        """See ``Backend``.

        Raises:
            NeedsOneServerError: There are several, and no address to put it in front of.
        """
        if self._several:
            raise NeedsOneServerError
        return Proxy(self._url).start()

    def is_about(self, request: Request, namespace: str) -> bool:
        """See ``Backend``: it runs a script on its keys."""
        return request.command in {"EVALSHA", "EVAL"} and request.contains(namespace)

    def stored(self, namespace: str) -> list[str]:
        """See ``Backend``: the keys."""
        return sorted({key.decode() for _, key in self._found(namespace) if b":dead:" not in key})

    def picture(self, namespace: str) -> Mapping[str, Any]:
        """See ``Backend``."""
        return {
            f"{number} {key.decode()}": self._raw[number].dump(key)
            for number, key in self._found(namespace)
            if b":dead:" not in key
        }

    def queued(self, namespace: str) -> frozenset[object]:
        """See ``Backend``."""
        found = [(number, key) for number, key in self._found(namespace) if key.endswith(b"queue")]
        return frozenset(member for number, key in found for member in self._raw[number].zrange(key, 0, -1))

    def without_ttl(self, namespace: str) -> list[str]:
        """See ``Backend``."""
        found = self._found(namespace)
        return sorted(key.decode() for number, key in found if self._raw[number].pttl(key) == -1)

    def wipe(self, namespace: str) -> None:
        """See ``Backend``."""
        for number, key in self._found(namespace):
            self._raw[number].delete(key)

    def forget_scripts(self) -> None:
        """See ``Backend``."""
        for raw in self._raw:
            raw.script_flush()

    def uptime(self) -> int:
        """See ``Backend``."""
        return min(int(raw.info("server")["uptime_in_seconds"]) for raw in self._raw)

    def close(self) -> None:
        """See ``Backend``."""
        for raw in self._raw:
            raw.close()

    def _found(self, namespace: str) -> list[tuple[int, bytes]]:
        return [
            (number, key)
            for number, raw in enumerate(self._raw)
            for key in raw.scan_iter(match=f"*{namespace}*", count=1000)
        ]
