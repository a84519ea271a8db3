"""Liveness and readiness; also on a separate port, for probes without a client certificate."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from http import HTTPStatus

from starlette.responses import Response

from pawlock.core.protocol.faults import to_error
from pawlock.core.protocol.runtime import Fault
from pawlock.errors import PawlockError
from pawlock.service.problems import Problem, problem_of, response_of
from pawlock.service.requests import State, answer

__all__ = ["alive", "open_probes", "ready"]

_WITHIN = 5.0
_LONGEST = 8192
_MOST_AT_ONCE = 64


def alive() -> Response:
    """200 as long as the process responds."""
    return answer({"alive": True})


async def ready(state: State) -> Response:
    """200 while the service accepts requests and its lock server responds.

    Raises:
        Problem: It is about to end, or the server does not answer.
    """
    if state.draining:
        raise Problem(503, "DRAINING", "shutting down")
    space = state.spaces.of("pawlock")
    # Once, within a second: who asks this asks again soon.
    question = space.primitive("lock", "readyz").inspect(0)
    (outcome,) = await space.engine.runtime.call_many((question,), 1.0)
    if isinstance(outcome, Fault):
        raise problem_of(to_error(outcome, "pawlock", "check the server"))
    return answer({"ready": True})


async def _respond(state: State, head: bytes) -> Response:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    try:
        if method in (b"GET", b"HEAD") and path == b"/readyz":
            return await ready(state)
        if method in (b"GET", b"HEAD") and path == b"/healthz":
            return alive()
    except Problem as problem:
        return response_of(problem)
    except PawlockError as error:
        return response_of(problem_of(error))
    return response_of(Problem(404, "NO_SUCH_ROUTE", "this port serves only GET /healthz and GET /readyz"))


async def open_probes(state: State, listener: socket.socket) -> asyncio.Server:
    """Serve ``/healthz`` and ``/readyz`` in plain HTTP on a separate port: no token, no certificate, nothing else.

    Args:
        state: The instance.
        listener: A socket that is bound.
    """
    room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            async with room, asyncio.timeout(_WITHIN):
                head = await reader.readuntil(b"\r\n\r\n")
                response = await _respond(state, head)
                lines = [
                    f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()
                ]
                lines += [name + b": " + value for name, value in response.raw_headers]
                lines += [b"cache-control: no-store", b"connection: close", b"", b""]
                writer.write(
                    b"\r\n".join(lines) + (b"" if head.startswith(b"HEAD ") else bytes(response.body))
                )
                await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, sock=listener, limit=_LONGEST)
