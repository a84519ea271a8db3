"""What a client says, or refuses, about the settings of its server."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import pawlock
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import APIS, connect, done, play
from tests.support.servers import Server

each_api = pytest.mark.parametrize("api", APIS)


@pytest.fixture
def evicting() -> Iterator[Server]:
    """A server that removes keys to make room."""
    with Server("valkey", args=["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]) as server:
        yield server


@pytest.mark.slow
@each_api
def test_strict_refuses_and_says_what_to_do(evicting: Server, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, evicting.url, strict=True)
        for _ in range(2):
            with pytest.raises(pawlock.NotSupported, match="volatile-lru") as caught:
                await done(client.lock("x").acquire())
            assert "noeviction" in str(caught.value)
        with pytest.raises(pawlock.NotSupported):
            await done(client.lock("x").try_acquire())
        evicting.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await done((await done(client.lock("x").acquire())).release())
        await done(client.close())

    play(api, scenario)


@pytest.mark.slow
@each_api
def test_strict_lets_a_good_server_pass_and_asks_once(valkey: Server, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, valkey.url, strict=True)
        await done((await done(client.lock("x").acquire())).release())
        engine = client._engine() if api == "asyncio" else client._engine
        assert not engine.health.strict
        await done(client.close())

    play(api, scenario)


def test_without_strict_it_is_said_in_the_log(evicting: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pawlock.preflight")
    with pawlock.connect(evicting.url) as client, client.lock("x"):
        eventually(lambda: caplog.records, "it warns")
    assert len(caplog.records) == 1
    assert "volatile-lru" in caplog.text
    assert "noeviction" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("strict", [1, "yes", None, 0])
def test_strict_is_a_bool(strict: object) -> None:
    if strict is None:
        pawlock.connect("redis://127.0.0.1:1", strict=False)
        return
    with pytest.raises(pawlock.ConfigurationError, match="strict"):
        pawlock.connect("redis://127.0.0.1:1", strict=strict)  # type: ignore[arg-type]
