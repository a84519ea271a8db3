"""A command that the server refuses, to this user or to everybody: which one is said, in the words of each version."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import pawlock
from tests.faults.rig import APIS, Api, in_thread
from tests.support.command import call
from tests.support.pace import pace
from tests.support.refusal import case
from tests.support.servers import EVERY_FLAVOUR, Flavour, Server, available


def acquired(url: str) -> str:
    """The text of the error of both APIs, which say the same."""

    async def in_asyncio() -> None:
        async with pawlock.connect_async(url, unavailable_after=0.5) as client:
            await client.lock("order").acquire(timeout=2)

    with pawlock.connect(url, unavailable_after=0.5) as client, pytest.raises(pawlock.PawlockError) as caught:
        client.lock("order").acquire(timeout=2)
    with pytest.raises(type(caught.value)) as in_the_other:
        asyncio.run(in_asyncio())
    assert str(in_the_other.value) == str(caught.value)
    return f"{type(caught.value).__name__} {caught.value}"


@pytest.mark.parametrize("flavour", EVERY_FLAVOUR)
def test_a_command_that_the_user_may_not_use_is_named(flavour: Flavour) -> None:
    if reason := available(flavour):
        pytest.skip(reason)
    with Server(flavour) as server:
        url = server.url.replace("://", "://app:secret@")
        for command in ("time", "exists", "hmget", "set", "evalsha"):
            with case(command):
                rule = f"on >secret ~* &* +@read +@write +@scripting +@connection +@pubsub +time -{command}"
                server.command("ACL", "SETUSER", "app", "reset", *rule.split())
                text = acquired(url)
                assert text.startswith("BackendDenied")
                assert command in text.lower()
                assert "user_script" not in text


@pytest.mark.parametrize("flavour", EVERY_FLAVOUR)
def test_a_key_that_the_user_may_not_use_is_a_denial(flavour: Flavour) -> None:
    if reason := available(flavour):
        pytest.skip(reason)
    with Server(flavour) as server:
        server.command("ACL", "SETUSER", "app", *["on", ">secret", "~pawlock:*", "&*", "+@all"])
        text = acquired(server.url.replace("://", "://app:secret@"))
        assert text.startswith("BackendDenied")
        assert "key" in text


@pytest.mark.parametrize("flavour", EVERY_FLAVOUR)
def test_a_command_that_nobody_may_use_is_named_without_the_text_of_a_script(flavour: Flavour) -> None:
    if reason := available(flavour):
        pytest.skip(reason)
    for command in ("EVALSHA", "EVAL", "TIME"):
        with case(command), Server(flavour, args=["--rename-command", command, ""]) as server:
            text = acquired(server.url)
            assert text.startswith("NotSupported")
            assert f"does not know {command} " in text
            assert len(text) < 200
            if command == "EVALSHA":
                code, printed, _ = call("doctor", "--json", server.url)
                found = {one["check"]: one for one in json.loads(printed)[0]["findings"]}
                assert (code, found["scripts"]["severity"]) == (2, "error")


@pytest.mark.parametrize(
    ("command", "flavour"),
    [("SUBSCRIBE", "valkey"), ("PUBLISH", "valkey"), ("HELLO", "valkey"), ("HELLO", "redis-6.2")],
)
def test_without_messages_waiters_poll(command: str, flavour: Flavour) -> None:
    """Also for what is no lock; ``doctor`` says so. Without ``HELLO`` a server speaks RESP2."""
    if reason := available(flavour):
        pytest.skip(reason)
    off = ["--rename-command", command, "", "--requirepass", "secret"]
    with Server(flavour, args=off) as server:
        url = server.url.replace("://", "://:secret@").replace("/0", "/1")
        late = [seconds for api in APIS for seconds in how_late(url, api)]
        assert sorted(late)[len(late) // 2] < pace() * 0.3
        assert max(late) < pace() * 0.7
        _, printed, _ = call("doctor", "--json", url)
        found = {one["check"]: one for one in json.loads(printed)[0]["findings"]}
        assert found["wake-ups"]["severity"] == "warning"
        assert "polls" in found["wake-ups"]["text"]
        assert found["lock"]["severity"] == "ok"


def test_who_may_not_publish_polls() -> None:
    with Server() as server:
        server.command("ACL", "SETUSER", "app", *["on", ">secret", "~*", "&*", "+@all", "-publish"])
        url = server.url.replace("://", "://app:secret@")
        late = [seconds for api in APIS for seconds in how_late(url, api)]
        assert sorted(late)[len(late) // 2] < pace() * 0.3
        assert max(late) < pace() * 0.7


def how_late(url: str, api: str) -> list[float]:
    """How late those are whom a release, or another act, lets go on: of each kind that waits."""
    with Api(api) as chosen:
        holder, waiter = (chosen.connect(url).raw for _ in range(2))
        held = [chosen.run(acquire) for acquire in acquires(holder)]

        def ended(wait: Callable[[], Any]) -> tuple[Any, float]:
            return chosen.run(wait), time.monotonic()

        gates = [waiter.latch(api, 1).wait, waiter.barrier(api, 2).wait]
        waits = [in_thread(partial(ended, wait)) for wait in [*acquires(waiter), *gates]]
        # Not a whole number of the times after which one who listens asks by itself.
        time.sleep(1.25)
        assert not any(wait.done() for wait in waits)
        began = time.monotonic()
        for lease in held:
            chosen.run(lease.release)
        chosen.run(holder.latch(api, 1).count_down)
        chosen.run(holder.barrier(api, 2).wait)
        found = [wait.result(10) for wait in waits]
        for lease, _ in found[: len(held)]:
            chosen.run(lease.release)
        return [at - began for _, at in found]


def acquires(client: Any) -> list[Callable[[], Any]]:
    return [
        client.lock("order").acquire,
        client.semaphore("order", permits=1).acquire,
        client.rwlock("order").write.acquire,
        client.election("order").campaign,
        client.lock(pawlock.Key("shared")).acquire,
    ]
