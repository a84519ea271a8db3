"""``pawlock.Key.redisson`` where a name may stand, in both APIs, beside what Redisson writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
import redis

import pawlock
from tests.faults.rig import Api
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.refusal import case
from tests.support.servers import Server

ROOT = Path(pawlock.__file__).parent.parent.parent
JAVA = "6f1c1f06-9d6e-4a3f-8f0b-0d5f5a1c2b3d:31"
KEY = pawlock.Key.redisson("order:42")
FENCED = pawlock.Key.redisson("order:42", fenced=True)


def number(server: Server, *words: str) -> int:
    found = server.command(*words)
    assert isinstance(found, int)
    return found


def fields(server: Server) -> list[bytes]:
    found = server.command("HGETALL", "order:42")
    assert isinstance(found, list)
    return [bytes(one) for one in found if isinstance(one, bytes)]


def test_it_is_held_as_redisson_holds_it(server: Server, api: Api) -> None:
    raw = api.connect(server.url).raw
    lease = api.run(raw.lock(KEY, ttl=5.0).acquire)
    assert fields(server) == [lease.token.encode(), b"1"]
    assert 0 < number(server, "PTTL", "order:42") <= 5000
    assert api.run(raw.lock(KEY).try_acquire) is None
    assert lease.name == "key:order:42"
    api.run(lambda: lease.extend(60))
    assert number(server, "PTTL", "order:42") > 50_000
    info = api.run(lambda: raw.inspect(KEY))
    assert (info.held, info.foreign, info.fence) == (True, False, lease.fence)
    api.run(lease.release)
    assert fields(server) == []


def test_a_lock_of_java_is_waited_for(server: Server, api: Api) -> None:
    raw = api.connect(server.url).raw
    server.command("HSET", "order:42", JAVA, "2")
    server.command("PEXPIRE", "order:42", "60000")
    before = server.command("DUMP", "order:42")
    assert api.run(raw.lock(KEY).try_acquire) is None
    with pytest.raises(pawlock.AcquireTimeout):
        api.run(lambda: raw.rlock(KEY).acquire(timeout=0.2))
    with pytest.raises(pawlock.AcquireTimeout):
        api.run(lambda: raw.multi_lock([KEY, "other"]).acquire(timeout=0.2))
    info = api.run(lambda: raw.inspect(KEY))
    assert (info.held, info.foreign, info.holder, info.fence) == (True, True, "", None)
    assert server.command("DUMP", "order:42") == before
    forced = api.run(lambda: raw.force_release(KEY, reason="a test"))
    assert (forced.count, forced.holder) == (1, "")
    lease = api.run(lambda: raw.multi_lock([KEY, "other"]).acquire(timeout=5))
    api.run(lease.release)


def test_min_hold_keeps_java_out(server: Server, api: Api) -> None:
    raw = api.connect(server.url).raw
    lease = api.run(raw.lock(KEY, min_hold=60).acquire)
    api.run(lease.release)
    assert fields(server) == [b"closed@min_hold", b"1"]
    assert number(server, "PTTL", "order:42") > 30_000
    assert api.run(raw.lock(KEY).try_acquire) is None


def test_fences_go_on_from_the_counter(server: Server, api: Api) -> None:
    raw = api.connect(server.url).raw
    server.command("SET", "redisson_lock_token:{order:42}", "9000000000000000")
    seen = [9_000_000_000_000_000]
    for _ in range(2):
        lease = api.run(raw.lock(FENCED).acquire)
        seen.append(lease.fence)
        api.run(lease.release)
        seen.append(number(server, "INCR", "redisson_lock_token:{order:42}"))
    assert seen == sorted(set(seen))
    assert seen[1] == seen[0] + 1


REFUSED = {
    "a string": (("SET", "order:42", "x"), r"holds a string, and a Redisson lock is a hash: use pawlock\.Key\("),
    "a read-write lock": (("HSET", "order:42", "mode", "read"), "Redisson read-write lock"),
    "two holders": (("HSET", "order:42", JAVA, "1", "x:1", "1"), "a hash that is not a Redisson lock"),
    "a list": (("RPUSH", "order:42", "x"), "holds a list, which another program put there"),
}  # fmt: skip


def test_what_is_no_lock_of_redisson_is_refused_and_named(server: Server, api: Api) -> None:
    raw = api.connect(server.url).raw
    attempts: list[Callable[[], object]] = [
        raw.lock(KEY).acquire,
        raw.lock(KEY).try_acquire,
        raw.multi_lock(["one", KEY]).acquire,
        lambda: raw.inspect(KEY),
        lambda: raw.force_release(KEY, reason="a test"),
    ]
    for value, (words, told) in REFUSED.items():
        server.command("DEL", "order:42")
        server.command(*words)
        before = server.command("DUMP", "order:42")
        with case(value):
            for attempt in attempts:
                with pytest.raises(pawlock.WrongKey, match=told):
                    api.run(attempt)
            assert server.command("DUMP", "order:42") == before
            assert server.command("EXISTS", "one") == 0


def test_two_wires_on_one_name_exclude_each_other(server: Server, api: Api) -> None:
    raw, other = (api.connect(server.url, namespace="").raw for _ in range(2))
    first = api.run(other.lock(KEY).acquire)
    for plain in (raw.lock("order:42"), raw.lock(pawlock.Key("order:42"))):
        with pytest.raises(pawlock.WrongKey, match="on the wire of Redisson"):
            api.run(plain.try_acquire)
    api.run(first.release)
    second = api.run(raw.lock("order:42").acquire)
    assert second.fence > first.fence
    with pytest.raises(pawlock.WrongKey, match="holds a string, and a Redisson lock is a hash"):
        api.run(other.lock(KEY).try_acquire)
    api.run(second.release)


def test_it_is_refused_on_independent_masters(server: Server, api: Api) -> None:
    raw = api.connect([server.url, "redis://127.0.0.1:1", "redis://127.0.0.1:2"]).raw
    with pytest.raises(pawlock.NotSupported, match="independent masters"):
        raw.lock(KEY)


def test_a_user_with_the_rules_that_the_page_names(own_server: Server) -> None:
    page = (ROOT / "docs/how-to/share-names.md").read_text()
    (more,) = re.findall(r"`(\+lindex [^`]+)`", page)
    rules = files("pawlock").joinpath("pawlock.acl").read_text()
    words = rules.replace("CHANGE-THIS-PASSWORD", "secret").split()[1:]
    own_server.command("ACL", "SETUSER", *words)
    own_server.command("ACL", "SETUSER", "pawlock", *more.split())
    with redis.Redis.from_url(own_server.url) as plain, plain.pubsub() as ear:
        ear.subscribe("redisson_lock__channel:{order:42}")
        ear.get_message(timeout=5)
        with pawlock.connect(own_server.url.replace("redis://", "redis://pawlock:secret@")) as client:
            client.lock(FENCED).acquire().release()
        told = ear.get_message(timeout=5)
        assert told is not None
        assert told["data"] == b"0"


def test_a_ticket_goes_on(server: Server, api: Api) -> None:
    raw = api.connect(server.url).raw
    ticket = api.run(api.run(raw.lock(FENCED, ttl=60).acquire).detach)
    lease = api.run(lambda: raw.adopt(ticket))
    assert fields(server) == [lease.token.encode(), b"1"]
    api.run(lease.release)
    assert fields(server) == []


@pytest.mark.slow
def test_the_command_shows_a_lock_of_java_and_takes_it(server: Server) -> None:
    server.command("HSET", "order:42", JAVA, "1")
    server.command("PEXPIRE", "order:42", "60000")
    environ = {**os.environ, "PAWLOCK_URL": server.url}

    def pawlock_(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pawlock", *words],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    shown = pawlock_("show", "--json", "--key", "redisson:order:42")
    assert (shown.returncode, shown.stderr) == (0, "")
    (info,) = json.loads(shown.stdout)["locks"]
    assert (info["name"], info["held"], info["foreign"]) == ("key:order:42", True, True)
    taken = pawlock_("force-release", "--yes", "--reason", "a test", "--key", "redisson:order:42")
    assert taken.returncode == 0, taken.stderr
    assert fields(server) == []


@pytest.mark.slow
def test_a_cluster_and_sentinels(api: Api) -> None:
    for group in (ClusterGroup(replicas=1), SentinelGroup()):
        with group:
            raw = api.connect(group.url).raw
            for name in ("order:42", "{a}b", "plain"):
                key = pawlock.Key.redisson(name, fenced=True)
                lease = api.run(raw.lock(key, replicas=1).acquire)
                assert api.run(raw.lock(key).try_acquire) is None
                api.run(lease.release)
                api.run(api.run(raw.lock(key).acquire).release)
