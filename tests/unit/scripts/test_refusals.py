"""What the server refuses: memory, rights, wrong types, other wire versions. A refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.support.refusal import case
from tests.unit.scripts.model import CLOSED, take
from tests.unit.scripts.rig import KEYS, NAMES, Rig, token

A, B, C, D = (token(text) for text in "abcd")

REQUESTS: dict[str, Callable[[Rig], object]] = {
    "acquire": lambda rig: rig.acquire(A),
    "renew": lambda rig: rig.renew(A),
    "leave": lambda rig: rig.leave(A),
    "inspect": lambda rig: rig.inspect(),
}


def free(rig: Rig) -> None:
    rig.acquire(B)
    rig.leave(B)


def held(rig: Rig) -> None:
    rig.acquire(A)


def held_and_wanted(rig: Rig) -> None:
    rig.acquire(A)
    rig.acquire(B)


def waiting(rig: Rig) -> None:
    rig.acquire(B)
    rig.acquire(A)


def free_and_wanted(rig: Rig) -> None:
    rig.acquire(B, 50)
    rig.acquire(C)
    rig.advance(51)


SCENES = [free, held, held_and_wanted, waiting, free_and_wanted]


def scenes(rig: Rig, script: str) -> Iterator[str]:
    """Every scene, fresh, for one request."""
    for scene in SCENES:
        rig.redis.flushall()
        scene(rig)
        rig.run("inspect", (0,))  # lets what is past its expiry go
        yield f"{script} when {scene.__name__}"


def refusal(rig: Rig, script: str) -> str:
    """The server's error; empty when there was none."""
    try:
        REQUESTS[script](rig)
    except redis.ResponseError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("part", ["name", "fence", "queue", "tickets"])
def test_a_key_of_a_wrong_type_stops_a_script_before_it_writes(rig: Rig, part: str) -> None:
    for script in NAMES:
        refused = 0
        for scene in scenes(rig, script):
            key = rig.key(part)
            rig.redis.delete(key)
            rig.redis.rpush(key, "of somebody else")
            before = rig.raw()
            if error := refusal(rig, script):
                assert "WRONGTYPE" in error, scene
                assert rig.raw() == before, scene
                refused += 1
            else:
                assert rig.raw([key])[key] == before[key], scene
        assert refused, script


def test_another_wire_version_is_left_alone(rig: Rig) -> None:
    for script in NAMES:
        for scene in scenes(rig, script):
            rig.redis.hset(rig.key("fence"), "v", "2")
            before = rig.raw()
            if error := refusal(rig, script):
                assert error.endswith("PAWLOCKWIRE this name is used by pawlock wire version 2"), scene
                assert rig.raw() == before, scene
            else:
                # Only a plain leave gets by, and only where it takes away nothing but its own token.
                assert script == "leave", scene
                assert not rig.queue(), scene


def test_the_wire_version_is_written_with_the_first_grant(rig: Rig) -> None:
    rig.acquire(A)
    assert rig.redis.hget(rig.key("fence"), "v") == "1"


def test_every_key_has_an_expiry_in_every_scene(rig: Rig) -> None:
    for script in NAMES:
        for scene in scenes(rig, script):
            REQUESTS[script](rig)
            assert not [key for key, (_, expiry, _) in rig.raw().items() if expiry <= 0], scene


def test_a_script_works_on_both_protocols(rig: Rig) -> None:
    path = rig.redis.connection_pool.connection_kwargs["path"]
    for script in NAMES:
        replies = []
        for protocol in (2, 3):
            with redis.Redis(unix_socket_path=path, protocol=protocol, decode_responses=True) as client:
                rig.redis, kept = client, rig.redis
                try:
                    rig.redis.flushall()
                    held_and_wanted(rig)
                    replies.append(REQUESTS[script](rig))
                finally:
                    rig.redis = kept
        with case(script):
            assert replies[0] == replies[1]


def fill(rig: Rig) -> None:
    rig.redis.config_set("maxmemory-policy", "noeviction")
    rig.redis.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="used memory"):
        rig.redis.set("more", "x")


def test_without_memory_nothing_new_is_taken(own: Rig) -> None:
    own.acquire(A, 60_000)
    fill(own)
    before = own.raw()
    requests: list[Callable[[], object]] = [
        lambda: own.acquire(B),
        lambda: own.acquire(B, name="m"),
    ]
    for request in requests:
        with pytest.raises(redis.ResponseError, match="used memory"):
            request()
    assert own.raw() == before


def test_without_memory_leases_live_on_and_are_passed_on(own: Rig) -> None:
    own.acquire(A, 60_000)
    own.acquire(B, 60_000, 30_000)
    own.acquire(C, 60_000, 30_000)
    fill(own)
    assert own.renew(A, 90_000)[2] == 90_000
    before = take(own).queue[B].expiry
    assert own.renew(B, 60_000, 40_000)[3] >= before + 10_000
    assert take(own).queue[B].expiry >= before + 10_000
    assert own.leave(A, tomb=5000) == ("R",)
    assert own.value() == B
    assert own.acquire(A) == ("X",)
    assert own.leave(D, tomb=5000) == ("A", "other", 0)
    assert own.acquire(D) == ("X",), "a tombstone is set without memory too"
    assert own.leave(C, tomb=5000) == ("W",)
    assert own.leave(B, close=5000) == ("R",)
    assert own.value() == CLOSED


def test_without_memory_the_pump_works(own: Rig) -> None:
    own.acquire(A, 50)
    own.acquire(B, 60_000, 30_000)
    own.acquire(D, 60_000, 30_000)
    fill(own)
    own.advance(60)
    assert own.renew(C)[0] == "U" or own.value() == B
    assert own.value() == B
    own.leave(B)
    assert own.value() == D


def test_without_the_right_to_publish_a_release_is_done(own: Rig) -> None:
    own.redis.execute_command(
        "ACL", "SETUSER", "mute", "on", "nopass", "~*", "resetchannels", "+@all", "-publish"
    )
    path = own.redis.connection_pool.connection_kwargs["path"]
    own.acquire(A)
    own.acquire(B)
    kept = own.redis
    with redis.Redis(unix_socket_path=path, username="mute", password="", decode_responses=True) as mute:
        with pytest.raises(redis.exceptions.NoPermissionError):
            mute.publish("ch", "x")
        own.redis = mute
        assert own.leave(A, tomb=500) == ("R",)
        own.redis = kept
    assert own.value() == B
    assert own.acquire(A) == ("X",)


def test_scripts_touch_only_the_keys_they_declare(own: Rig) -> None:
    """A user that may touch nothing but one name's declared keys can run every scene of every script."""
    keys = sorted(
        {own.key(part, dead=A, dead_old=A, dead_new=D) for parts in KEYS.values() for part in parts}
    )
    keys += [own.key("dead", dead=D)]
    own.redis.execute_command(
        "ACL",
        "SETUSER",
        "narrow",
        "on",
        "nopass",
        "resetchannels",
        "&ch",
        "+@all",
        *(f"~{key}" for key in keys),
    )
    path = own.redis.connection_pool.connection_kwargs["path"]
    kept = own.redis
    with redis.Redis(unix_socket_path=path, username="narrow", password="", decode_responses=True) as narrow:
        for request in REQUESTS.values():
            for scene in SCENES:
                kept.flushall()
                scene(own)
                own.redis = narrow
                try:
                    request(own)
                finally:
                    own.redis = kept
