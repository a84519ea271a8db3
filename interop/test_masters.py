"""The Redlock algorithm of other libraries and pawlock's own, on the same three masters and the same key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import pawlock
from interop.conftest import wanted
from interop.kinds import KINDS
from interop.line import Driver
from tests.support.pace import pace
from tests.support.servers import Server


@pytest.fixture(scope="module")
def masters() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server("valkey")) for _ in range(3)]


@pytest.mark.parametrize("name", ["redlock4", "redlock5", "pottery", "aioredlock"])
def test_each_keeps_the_other_out_of_a_majority(name: str, masters: list[Server]) -> None:
    wanted(name)
    kind, urls = KINDS[name], [master.url for master in masters]
    key = kind.prefix + "x"
    for master in masters:
        master.command("FLUSHALL")
    fresh = pawlock.RedlockOptions(fresh=True)
    with pawlock.connect(urls, namespace="", redlock=fresh) as client, Driver(kind, ",".join(urls)) as them:
        assert them.ready().ask("try", key, 30_000)["ok"]
        assert client.lock(key).try_acquire() is None
        # One that has lost its key decides nothing.
        masters[0].command("DEL", key)
        assert client.lock(key).try_acquire() is None
        assert them.ask("unlock", key)["ok"]
        with client.lock(key, ttl=30.0).acquire(timeout=20 * pace()) as lease:
            assert not them.ask("try", key, 30_000)["ok"]
            lease.check()
            them.send("lock", key, 10_000, 20_000 * round(pace()))
            assert them.silent(0.3)
        assert them.reply(30 * pace())["ok"]
        assert client.lock(key).try_acquire() is None
        assert them.ask("unlock", key)["ok"]
