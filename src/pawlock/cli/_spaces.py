"""Which namespaces a server has: those whose clients publish sessions."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

__all__ = ["spaces"]

_MARK = ":1:sessions"
_BARE = "pawlock:"
"""Of clients with ``namespace=""``: no namespace holds a colon."""


def spaces(url: str | None) -> list[str]:
    """The namespaces in which something was held of late, as ``--namespace`` takes them, in order.

    Args:
        url: As for ``pawlock.connect``.

    Raises:
        NotSupported: The server has none that could be listed: a pawlock service, or independent masters.
        BackendUnavailable: It cannot be reached.
        BackendDenied: The account may not list keys.
    """
    import redis

    from pawlock._doctor import endpoints_of
    from pawlock.errors import BackendDenied, BackendUnavailable
    from pawlock.transport.connect import fault_of, make_sync

    found: set[str] = set()
    for endpoint in endpoints_of(url):
        connection = make_sync(endpoint, 5.0)
        try:
            connection.connect()
            found.update(_scan(connection))
        except redis.ResponseError as error:
            raise BackendDenied(f"the keys of {endpoint.shown} cannot be listed: {error}") from error
        except (redis.RedisError, OSError) as error:
            raise BackendUnavailable(fault_of(error, endpoint.shown).text) from error
        finally:
            connection.disconnect()
    return sorted(found)


def _scan(connection: Any) -> set[str]:
    found: set[str] = set()
    cursor = "0"
    while True:
        connection.send_command("SCAN", cursor, "MATCH", f"{{*}}{_MARK}", "COUNT", "1000")
        at, keys = connection.read_response()
        names = [key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in keys]
        prefixes = {name.removesuffix(_MARK)[1:-1] for name in names}
        found |= {"" if name == _BARE else unquote(name) for name in prefixes}
        cursor = at.decode() if isinstance(at, bytes) else str(at)
        if cursor == "0":
            return found
