"""The rules that pawlock ships for a user of its own: enough for everything, and no more than that."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest

import pawlock
from tests.contract.edges.helpers import eventually
from tests.support.command import PAWLOCK, call, environment
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.servers import FLAVOURS, Flavour, Server, available

PACKAGE = Path(pawlock.__file__).parent
HANDSHAKE = {
    "auth",
    "hello",
    "eval",
    "evalsha",
    "subscribe",
    "script",
    "wait",
    "cluster",
    "asking",
    "echo",
}
"""What the transports send themselves; the rest is in scripts."""


def rules(namespace: str = "pawlock") -> list[str]:
    """The words of the line that `pawlock doctor --acl` prints, behind the first."""
    code, printed, said = call("doctor", "--acl", "--namespace", namespace)
    assert code == 0, said
    return printed.replace("CHANGE-THIS-PASSWORD", "secret").split()[1:]


def protect(*servers: Server) -> None:
    """Make the user of the rules on each."""
    for server in servers:
        server.command("ACL", "SETUSER", *rules())


def refusals(*servers: Server) -> list[bytes]:
    """What the servers refused."""
    logs = [cast("list[list[bytes]]", server.command("ACL", "LOG")) for server in servers]
    return [
        bytes(entry[entry.index(b"object") + 1]) for log in logs for entry in log if not is_courtesy(entry)
    ]


def as_user(url: str) -> str:
    """The URL for the user of the rules."""
    return url.replace("://", "://pawlock:secret@")


@pytest.fixture(params=FLAVOURS)
def guarded(request: pytest.FixtureRequest) -> Iterator[tuple[Server, str]]:
    """A server with the user of the rules, and the URL for that user."""
    if reason := available(request.param):
        pytest.skip(reason)
    with Server(request.param) as server:
        protect(server)
        yield server, as_user(server.url)


def use_everything(url: str, namespace: str = "pawlock") -> None:
    """Each primitive once, with a waiter where there can be one."""
    with pawlock.connect(url, ttl=5, namespace=namespace) as client:
        for lock in (
            client.lock("a"), client.rlock("b"), client.fair_lock("d"),
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
        with client.lock("a {{name}}"), client.semaphore("e", permits=2) as permit:
            permit.extend(5)
            client.semaphore("e", permits=2).set_limit(3)
        with client.rwlock("f").write as writer:
            writer.downgrade()
        latch = client.latch("i", 1)
        latch.count_down()
        latch.wait(timeout=1)
        with client.election("j").campaign(timeout=5):
            pass
        taken: list[tuple[Any, Any]] = [
            ("lock", client.lock("t").acquire()),
            ("semaphore", client.semaphore("t", permits=2).acquire()),
            ("rwlock", client.rwlock("t").read.acquire()),
            ("election", client.election("t").campaign(timeout=5)),
            ("once", client.once("t").begin()),
        ]
        assert len(client.locks()) == len(taken)
        for kind, _ in taken:
            client.force_release("t", kind, reason="a test")
        client.audit()
        client.inspect("a")
        ticket = client.lock("k").acquire().detach()
        client.adopt(ticket).release()

    async def tasks() -> None:
        async with pawlock.connect_async(url, namespace=namespace) as aclient, aclient.lock("z"):
            pass

    asyncio.run(tasks())


def is_courtesy(entry: list[bytes]) -> bool:
    """redis-py tells the server its name when it connects, and does not mind when that is refused."""
    return bytes(entry[entry.index(b"object") + 1]).startswith(b"client|setinfo")


def test_everything_works_under_the_rules(guarded: tuple[Server, str]) -> None:
    server, url = guarded
    server.command("ACL", "LOG", "RESET")
    use_everything(url)
    assert not refusals(server)


@pytest.mark.parametrize("namespace", [pytest.param("billing", marks=pytest.mark.slow), "a b*:é%"])
def test_each_namespace_has_its_rules(own_server: Server, namespace: str) -> None:
    """For the library, and for every command of an operator with the account's URL."""
    words = rules(namespace)
    own_server.command("ACL", "SETUSER", *words)
    user = quote(words[0], safe="")
    url = own_server.url.replace("://", f"://{user}:secret@")
    own_server.command("ACL", "LOG", "RESET")
    use_everything(url, namespace)
    env = environment(PAWLOCK_URL=url, PAWLOCK_NAMESPACE=namespace)
    with pawlock.connect(url, namespace=namespace) as client:
        lease = client.lock("a").acquire()
        for command in (
            ["ls"], ["show", "a"], ["top", "-n", "1"],
            ["force-release", "--yes", "--reason", "r", "a"],
        ):  # fmt: skip
            done = call(*command, env=env)
            assert done[0] == 0, (command, done)
        with pytest.raises(pawlock.NotHeld):
            lease.release()
    for options in ([], ["--elect"]):
        words_of_run = [*PAWLOCK, "run", *options, "n", "--", "true"]
        subprocess.run(words_of_run, env=env, capture_output=True, check=True)
    assert not refusals(own_server)

    def found(namespace: str) -> dict[str, Any]:
        told = json.loads(call("doctor", "--json", url, "--namespace", namespace)[1])
        return {one["check"]: one for one in told[0]["findings"]}

    def severities(namespace: str) -> tuple[str, str]:
        one = found(namespace)
        return one["rights"]["severity"], one["wake-ups"]["severity"]

    assert severities(namespace) == ("unknown", "ok")
    own_server.command("ACL", "SETUSER", words[0], "+acl|whoami", "+acl|dryrun")
    # Each command that is needed has a dry run that the server understands.
    assert severities(namespace) == ("ok", "ok")
    assert severities("other") == ("error", "warning")
    assert "other:wake:*" in found("other")["wake-ups"]["fix"]
    with pawlock.connect(url, namespace="other") as client, pytest.raises(pawlock.BackendDenied):
        client.lock("a").acquire()


def test_bare_names_have_no_rules_of_ours() -> None:
    code, printed, said = call("doctor", "--acl", "--namespace", "")
    assert (code, printed) == (64, "")
    assert "keys are the lock names" in said


def test_a_cluster_works_under_the_rules_while_its_slots_move() -> None:
    with ClusterGroup() as group:
        protect(*group.nodes)
        slot = group.slot_of("pawlock:a")
        source = group.owner(slot)
        target = next(node for node in group.nodes if node is not source)
        with pawlock.connect(as_user(group.url)) as client:
            lease = client.lock("a").acquire()
            group.begin_move(slot, source, target)
            group.move_keys(slot, source, target)
            # Only asked for it does the target answer now, and not for keys that are nowhere.
            with pytest.raises(pawlock.BackendUnavailable, match="TRYAGAIN"):
                client.semaphore("a", permits=1, unavailable_after=0.3).acquire()
            group.end_move(slot, source, target)
            lease.release()
            with client.multi_lock(["x", "y", "z"]), client.semaphore("e", permits=2):
                waiter = threading.Thread(target=lambda: client.lock("x").acquire(timeout=9).release())
                waiter.start()
            waiter.join()
        assert not refusals(*group.nodes)


def test_sentinels_and_replicas_work_under_the_rules() -> None:
    with SentinelGroup(sentinels=1) as group:
        protect(*group.servers)
        with pawlock.connect(as_user(group.url)) as client:

            def is_replicated() -> bool:
                try:
                    client.lock("r", replicas=1).acquire().release()
                except pawlock.NotReplicated:
                    return False
                return True

            # A replica that came a moment ago takes a while to acknowledge.
            eventually(is_replicated, "the replica acknowledges")
        assert not refusals(*group.servers)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_several_masters_work_under_the_rules(flavour: Flavour) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(flavour, unix=False)) for _ in range(3)]
        protect(*servers)
        urls = [as_user(server.url) for server in servers]
        with pawlock.connect(urls, redlock=pawlock.RedlockOptions(fresh=True)) as client:
            for lock in (client.lock("a"), client.rlock("b"), client.multi_lock(["g", "h"])):
                with lock:
                    pass
            with client.lock("a") as lease:
                assert lease.fence_strength == "quorum"
                lease.extend(20)
                other = stack.enter_context(pawlock.connect(urls, redlock=pawlock.RedlockOptions(fresh=True)))
                with pytest.raises(pawlock.AcquireTimeout):
                    other.lock("a").acquire(timeout=1)
            client.inspect("a")
        assert not refusals(*servers)


def test_nothing_else_is_allowed(guarded: tuple[Server, str]) -> None:
    server, _ = guarded
    allowed = set(re.findall(r"\+([a-z]+)", " ".join(rules())))
    for command in (
        "FLUSHALL",
        "KEYS",
        "CONFIG",
        "DEBUG",
        "SHUTDOWN",
        "MONITOR",
        "ACL",
        "SAVE",
        "REPLICAOF",
    ):
        assert command.lower() not in allowed
    assert "no permissions" in str(server.command("ACL", "DRYRUN", "pawlock", "GET", "other:key"))
    assert "no permissions" in str(server.command("ACL", "DRYRUN", "pawlock", "PUBLISH", "other", "x"))
    assert "no permissions" in str(server.command("ACL", "DRYRUN", "pawlock", "FLUSHALL"))
    assert server.command("ACL", "DRYRUN", "pawlock", "GET", "pawlock:key") in (b"OK", "OK")


def test_a_backslash_in_a_namespace_opens_no_other_one() -> None:
    with Server("valkey") as server:
        server.command("ACL", "SETUSER", *rules("team\\"))
        whoami = "team\\"
        for key in ("team:secret", "team*:a", "team\\\\:a"):
            assert "no permissions" in str(server.command("ACL", "DRYRUN", whoami, "GET", key)), key
        assert "no permissions" in str(server.command("ACL", "DRYRUN", whoami, "PUBLISH", "team:wake:a", "x"))
        url = server.url.replace("://", f"://{quote(whoami)}:secret@")
        use_everything(url, namespace="team\\")
        assert not refusals(server)


def test_the_rules_name_what_scripts_and_transports_use_and_nothing_more() -> None:
    inner = {
        name.lower()
        for path in PACKAGE.rglob("*.lua")
        # Keys of other programs are none of the rules': who shares one adds it, and the commands for it.
        if path.parent.name != "key"
        for name in re.findall(r"call\('([A-Z]+)'", path.read_text(encoding="ascii"))
    }
    named = set(re.findall(r"\+([a-z]+)", " ".join(rules())))
    assert named == inner | HANDSHAKE
