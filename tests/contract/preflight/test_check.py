"""What a client says about the settings of its server."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

import pawlock
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import APIS, connect, done, play
from tests.support.servers import Server

FRESH = pawlock.RedlockOptions(fresh=True)

each_api = pytest.mark.parametrize("api", APIS)


@pytest.fixture
def evicting() -> Iterator[Server]:
    """A server that removes keys to make room."""
    with Server("valkey", args=["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]) as server:
        yield server


def wrong(reports: list[pawlock.ServerReport]) -> list[pawlock.Finding]:
    return [one for report in reports for one in report.findings if one.severity is pawlock.Severity.ERROR]


@each_api
def test_a_check_names_the_guarantee_and_the_fix(evicting: Server, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, evicting.url)
        (report,) = reports = await done(client.check())
        assert report.server.startswith("redis://")
        (found,) = wrong(reports)
        assert (found.check, found.promise) == ("eviction", "mutual exclusion")
        assert "volatile-lru" in found.text
        assert "noeviction" in found.fix
        assert "lock" not in {one.check for one in report.findings}, "its errors say why a lock may fail"
        evicting.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        (report,) = reports = await done(client.check())
        assert not wrong(reports)
        assert report.findings[-1].check == "lock"
        assert report.findings[-1].severity is pawlock.Severity.OK
        assert not (await done(client.inspect("pawlock-check"))).held
        await done(client.close())
        with pytest.raises(pawlock.ClientClosed):
            await done(client.check())

    play(api, scenario)


@each_api
def test_a_lock_that_cannot_be_had_is_an_error(valkey: Server, api: str) -> None:
    valkey.command("FLUSHALL")

    async def scenario() -> None:
        client = connect(api, valkey.url, replicas=1)
        (found,) = wrong(await done(client.check()))
        assert found.check == "lock"
        assert "0 of 1 replicas" in found.text
        await done(client.close())

    play(api, scenario)


@each_api
def test_masters_are_checked_each_and_together(api: str) -> None:
    with Server("valkey") as first, Server("valkey") as second, Server("valkey") as third:
        urls = [server.url for server in (first, second, third)]

        async def scenario() -> None:
            client = connect(api, urls, redlock=FRESH)
            reports = await done(client.check())
            assert len(reports) == 4
            assert {one.check for one in reports[-1].findings} >= {"majority", "clocks", "lock"}
            assert 0 < await done(client.ping()) < 5
            await done(client.close())

        play(api, scenario)


@each_api
def test_a_ping_is_answered_or_refused(own_server: Server, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, own_server.url)
        assert 0 < await done(client.ping()) < 5
        own_server.kill()
        began = time.monotonic()
        with pytest.raises(pawlock.BackendUnavailable):
            await done(client.ping())
        assert time.monotonic() - began < 9
        assert [one.check for one in wrong(await done(client.check()))] == ["reach"]
        own_server.start()
        await done(client.close())

    play(api, scenario)


def test_what_breaks_a_promise_is_said_in_the_log(evicting: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pawlock.preflight")
    with pawlock.connect(evicting.url) as client, client.lock("x"):
        eventually(lambda: caplog.records, "it warns")
    assert len(caplog.records) == 1
    assert "volatile-lru" in caplog.text
    assert "noeviction" in caplog.text
