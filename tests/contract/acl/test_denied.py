"""A command that the server refuses, to this user or to everybody: which one is said, in the words of each version."""

from __future__ import annotations

import asyncio
import json

import pytest

import pawlock
from tests.support.command import call
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


def test_where_nobody_may_subscribe_waiters_poll() -> None:
    with Server(args=["--rename-command", "SUBSCRIBE", ""]) as server, pawlock.connect(server.url) as client:
        held = client.lock("order").acquire()
        with pawlock.connect(server.url) as other, pytest.raises(pawlock.AcquireTimeout):
            other.lock("order").acquire(timeout=0.3)
        held.release()
        with pawlock.connect(server.url) as other:
            other.lock("order").acquire(timeout=2).release()
