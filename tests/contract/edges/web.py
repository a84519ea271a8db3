"""The smallest web application that locks: `/<kind>/<name>/<seconds>`, for WSGI and ASGI.

Nothing closes its clients, but a lifespan where the server runs one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pawlock

OPTIONS: dict[str, Any] = {"ttl": 60.0, "ticket_ttl": 30.0}
client = pawlock.connect()
async_client = pawlock.connect_async()


def _asked(path: str) -> tuple[str, str, float]:
    kind, name, seconds = path.strip("/").split("/")
    return kind, name, float(seconds)


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """For gunicorn."""
    kind, name, seconds = _asked(environ["PATH_INFO"])
    with getattr(client, kind)(name, **OPTIONS).acquire(timeout=20):
        time.sleep(seconds)
    start_response("200 OK", [("Content-Length", "0")])
    return []


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """For uvicorn."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await async_client.close()
        await send({"type": "lifespan.shutdown.complete"})
        return
    kind, name, seconds = _asked(scope["path"])
    async with await getattr(async_client, kind)(name, **OPTIONS).acquire(timeout=20):
        await asyncio.sleep(seconds)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
