"""Scripts of the last release and the present ones run on one name at once.

`former.json` has the mutex scripts of the last release, as its docs/wire/scripts.json had them. Until there is one it
has the first complete set of this wire version. A release replaces it by its own.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import pawlock
from pawlock.core.protocol.names import WIRE_VERSION
from tests.faults.rig import in_thread, until
from tests.nightly.interop.counting import chosen, count
from tests.nightly.interop.kinds import KINDS
from tests.nightly.interop.line import Driver
from tests.support.pace import pace
from tests.support.servers import Server

HERE = Path(__file__).resolve().parent
KEY = "pawlock:x"


def scripts(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert found["wire"] == WIRE_VERSION, "a new wire version has no former release"
    return dict(found["scripts"])


FORMER = scripts(HERE / "former.json")
PRESENT = scripts(HERE.parents[2] / "docs" / "wire" / "scripts.json")


@pytest.mark.parametrize("name", FORMER)
def test_both_take_the_same_keys_and_arguments(name: str) -> None:
    for part in ("keys", "arguments"):
        assert [one["name"] for one in FORMER[name][part]] == [one["name"] for one in PRESENT[name][part]]
    assert [key["suffix"] for key in FORMER[name]["keys"]] == [key["suffix"] for key in PRESENT[name]["keys"]]


def known(server: Server, sha: str) -> bool:
    return server.command("SCRIPT", "EXISTS", sha) == [1]


def test_each_hands_the_lock_to_the_other(server: Server) -> None:
    server.command("SCRIPT", "FLUSH")
    with (
        pawlock.connect(server.url) as client,
        Driver(KINDS["pawlock-former"], server.url, PAWLOCK_WIRE="own") as them,
    ):
        them.ready()
        fences = []
        for _ in range(3):
            lease = client.lock("x").acquire()
            fences.append(lease.fence)
            assert not them.ask("try", KEY, 30_000)["ok"]
            them.send("lock", KEY, 30_000, -1)
            until(lambda: client.inspect("x").queue_length == 1, what="it queues")
            lease.release()
            fences.append(them.reply()["fence"])
            assert client.lock("x").try_acquire() is None
            waiting = in_thread(lambda: client.lock("x").acquire(timeout=20))
            until(lambda: client.inspect("x").queue_length == 1, what="pawlock queues")
            begin = time.monotonic()
            assert them.ask("unlock", KEY)["ok"]
            lease = waiting.result(20)
            assert time.monotonic() - begin < pace() * 0.5, "told by a message"
            fences.append(lease.fence)
            lease.release()
        assert fences == sorted(set(fences))
    for name in ("mutex/acquire", "mutex/leave"):
        assert all(known(server, some[name]["sha1"]) for some in (FORMER, PRESENT)), "both took part"


@pytest.mark.slow
@pytest.mark.parametrize("dead", ["pawlock", "pawlock-former"])
def test_who_dies_is_succeeded_by_the_other(dead: str, server: Server) -> None:
    waits = "pawlock" if dead == "pawlock-former" else "pawlock-former"
    with (
        Driver(KINDS[dead], server.url, PAWLOCK_WIRE="own") as one,
        Driver(KINDS[waits], server.url, PAWLOCK_WIRE="own") as other,
    ):
        first = one.ready().ask("lock", KEY, 2000, -1)
        other.ready().send("lock", KEY, 30_000, -1)
        until(lambda: server.command("ZCARD", "{pawlock:x}:1:queue") == 1, what="it queues")
        one.kill()
        killed = time.monotonic()
        got = other.reply()
        assert got["fence"] > first["fence"]
        assert got["t"] - killed < 2.0 + pace() * 1.0


@pytest.mark.slow
def test_they_share_a_counter(valkey: Server) -> None:
    """Nobody is inside with another, all fences rise, and nobody has a tenth more grants than another."""
    valkey.command("FLUSHALL")
    verdict = count(
        valkey.url, chosen("pawlock,pawlock-asyncio,pawlock-former,pawlock-former"), 4.0, ttl=10.0
    )
    assert verdict.safe, verdict.as_json()
    grants = [len(part.grants) for part in verdict.parts]
    assert max(grants) <= min(grants) * 1.1, verdict.as_json()
    assert [part.errors for part in verdict.parts] == [[]] * len(grants)
