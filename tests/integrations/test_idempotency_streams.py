"""Streaming responses under ``pawlock.integrations.asgi.Idempotency`` whose client goes away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

import pawlock
from pawlock.integrations.asgi import Idempotency
from tests.integrations.test_idempotency import Bank, Client, who
from tests.support.servers import Server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[pawlock.AsyncClient]:
    async with pawlock.connect_async(server.url) as client:
        yield client


@pytest.mark.parametrize("spec", ["2.3", "2.4"])
async def test_a_client_that_goes_away_in_a_long_stream_is_not_handled_again(
    client: pawlock.AsyncClient, spec: str
) -> None:
    """Up to 2.3 a StreamingResponse stops when it receives the disconnect, from 2.4 on when sending raises."""
    bank = Bank()
    app = bank.app()

    @app.post("/endless")
    async def endless() -> StreamingResponse:
        async def made() -> AsyncIterator[bytes]:
            yield b"x" * 70000
            await asyncio.sleep(0 if spec == "2.4" else 3600)
            yield b"x"

        bank.paid.append("endless")
        return StreamingResponse(made())

    app.add_middleware(Idempotency, client=client, caller=who)

    async def server(scope: Scope, receive: Receive, send: Send) -> None:
        async def refuse(message: Message) -> None:
            if message.get("body") == b"x":
                raise BrokenPipeError
            await send(message)

        scope["asgi"]["spec_version"] = spec
        await app(scope, receive, refuse)

    user = Client(server)
    user.gone.set()
    with contextlib.suppress(ClientDisconnect):
        assert (await user.ask("/endless")).status == 200
    assert (await user.ask("/endless")).problem == (409, "RESPONSE_NOT_KEPT")
    assert bank.paid == ["endless"]
