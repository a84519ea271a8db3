"""The rules that pawl ships for a user of its own: enough for everything, and no more than that."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pawl
from pawl._doctor import acl_rules, needed_commands
from pawl.testing.servers import FLAVOURS, Server, available

PACKAGE = Path(pawl.__file__).parent
HANDSHAKE = {"auth", "hello", "eval", "evalsha", "subscribe"}
"""What the transports send themselves; the rest is in scripts."""


@pytest.fixture(params=FLAVOURS)
def guarded(request: pytest.FixtureRequest) -> Iterator[tuple[Server, str]]:
    """A server with the user of the rules, and the URL for that user."""
    if reason := available(request.param):
        pytest.skip(reason)
    with Server(request.param) as server:
        words = acl_rules().replace("CHANGE-THIS-PASSWORD", "secret").split()[1:]
        server.command("ACL", "SETUSER", *words)
        yield server, server.url.replace("redis://", "redis://pawl:secret@")


def use_everything(url: str) -> None:
    """Each primitive once, with a waiter where there can be one."""
    with pawl.connect(url, ttl=5, history=10) as client:
        for lock in (
            client.lock("a"), client.rlock("b"), client.rlock("c", owner="job"), client.fair_lock("d"),
            client.semaphore("e", permits=2), client.rwlock("f").read, client.rwlock("f").write,
            client.multi_lock(["g", "h"]),
        ):  # fmt: skip
            with lock:
                pass
        with client.lock("a") as held:
            waiter = threading.Thread(target=lambda: client.lock("a").acquire(timeout=5).release())
            waiter.start()
            held.extend(6)
        waiter.join()
        latch = client.latch("i", 1)
        latch.count_down()
        latch.wait(timeout=1)
        with client.election("j").campaign(timeout=5):
            pass
        client.locks()
        client.force_release("a", reason="a test")
        client.audit()
        client.history("a")
        client.inspect("a")
        ticket = client.lock("k").acquire().detach()
        client.adopt(ticket).release()

    async def tasks() -> None:
        async with pawl.connect_async(url) as aclient, aclient.lock("z"):
            pass

    asyncio.run(tasks())


def is_courtesy(entry: object) -> bool:
    """redis-py tells the server its name when it connects, and does not mind when that is refused."""
    assert isinstance(entry, list)
    told = dict(zip(entry[::2], entry[1::2], strict=True))
    return bytes(told[b"object"]).startswith(b"client|setinfo")


def test_everything_works_under_the_rules(guarded: tuple[Server, str]) -> None:
    server, url = guarded
    server.command("ACL", "LOG", "RESET")
    use_everything(url)
    denied = server.command("ACL", "LOG")
    refused = [entry for entry in denied if not is_courtesy(entry)]  # type: ignore[union-attr]
    assert not refused, refused


def test_nothing_else_is_allowed(guarded: tuple[Server, str]) -> None:
    server, _ = guarded
    allowed = set(re.findall(r"\+([a-z]+)", acl_rules()))
    for command in (
        "FLUSHALL",
        "KEYS",
        "CONFIG",
        "DEBUG",
        "SHUTDOWN",
        "SCAN",
        "MONITOR",
        "ACL",
        "SAVE",
        "REPLICAOF",
    ):
        assert command.lower() not in allowed
    assert "no permissions" in str(server.command("ACL", "DRYRUN", "pawl", "GET", "other:key"))
    assert "no permissions" in str(server.command("ACL", "DRYRUN", "pawl", "PUBLISH", "other", "x"))
    assert "no permissions" in str(server.command("ACL", "DRYRUN", "pawl", "FLUSHALL"))
    assert server.command("ACL", "DRYRUN", "pawl", "GET", "pawl:key") in (b"OK", "OK")


def test_the_rules_name_what_scripts_and_transports_use_and_nothing_more() -> None:
    inner = {
        name.lower()
        for path in PACKAGE.rglob("*.lua")
        for name in re.findall(r"call\('([A-Z]+)'", path.read_text(encoding="ascii"))
    }
    named = set(re.findall(r"\+([a-z]+)", acl_rules()))
    assert named == inner | HANDSHAKE | {"script", "wait"}


def test_each_command_has_a_dry_run_that_the_server_understands(guarded: tuple[Server, str]) -> None:
    server, _ = guarded
    for command, words in needed_commands().items():
        assert server.command("ACL", "DRYRUN", "pawl", command, *words) in (b"OK", "OK"), command
