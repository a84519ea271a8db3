"""The guard of keys in Redis, in both APIs, on real servers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

import pawlock
from pawlock.fencing import AsyncRedisGuard, RedisGuard
from tests.support.pace import pace
from tests.support.servers import Server

Run = Callable[..., Awaitable[Any]]


class Rig:
    """A guard of either API, called alike."""

    def __init__(self, server: Server, api: str) -> None:
        self.api, self.path = api, server.socket_path
        self.plain = redis.Redis(unix_socket_path=server.socket_path, decode_responses=True)

    async def __call__(self, lease: Any, *command: Any, by: str = "__call__", **options: Any) -> Any:
        if self.api == "threads":
            return getattr(RedisGuard(self.plain, **options), by)(lease, *command)
        async with redis.asyncio.Redis(unix_socket_path=self.path, decode_responses=True) as client:
            return await getattr(AsyncRedisGuard(client, **options), by)(lease, *command)


@pytest.fixture(params=["threads", "asyncio"])
def rig(request: pytest.FixtureRequest, server: Server) -> Iterator[Rig]:
    made = Rig(server, request.param)
    yield made
    made.plain.close()


async def test_a_late_holder_writes_nothing(rig: Rig) -> None:
    assert await rig(100, "SET", "tea", "ten") == "OK"
    assert await rig(200, "SET", "tea", "nine", "PX", 60_000) == "OK"
    with pytest.raises(pawlock.StaleFence, match="200") as caught:
        await rig(199, "SET", "tea", "eleven")
    assert caught.value.fence == 199
    assert rig.plain.get("tea") == "nine"
    assert await rig(200, "DEL", "tea") == 1
    with pytest.raises(pawlock.StaleFence):
        await rig(199, "SET", "tea", "back from the dead")


async def test_any_command_of_one_key_runs(rig: Rig) -> None:
    assert await rig(1, "HSET", "{shop}:tea", "left", 10, "place", "here") == 2
    assert await rig(2, "HINCRBY", "{shop}:tea", "left", -3) == 7
    assert await rig(2, "GET", "{shop}:nothing") is None
    assert rig.plain.hgetall("{shop}:tea") == {"left": "7", "place": "here"}
    assert sorted(rig.plain.keys("*guard")) == ["{shop}:nothing:pawlock:guard", "{shop}:tea:pawlock:guard"]


async def test_no_two_keys_have_one_fence(rig: Rig) -> None:
    keys = ("x", "{x}", "x{x}", "{x}x", "{x}{x}", "x:guard", "x:pawlock", "{x}:pawlock", "{x:pawlock}")
    for fence, key in enumerate(reversed(keys), 1):
        await rig(fence, "SET", key, key)
    guards = [key for key in rig.plain.scan_iter() if key not in keys]
    assert sorted(str(rig.plain.get(key)) for key in guards) == [*map(str, range(1, len(keys) + 1))]
    assert not {key_slot(key.encode()) for key in guards} - {key_slot(key.encode()) for key in keys}
    for key in guards:
        with pytest.raises(pawlock.ConfigurationError, match="fence"):
            await rig(10**6, "SET", key, 1)
        with pytest.raises(pawlock.ConfigurationError, match="fence"):
            await rig(10**6, key, by="claim")


async def test_fences_are_compared_as_whole_numbers_of_any_length(rig: Rig) -> None:
    for fence in (9, 10, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1):
        await rig(fence, "SET", "tea", fence)
        with pytest.raises(pawlock.StaleFence):
            await rig(fence - 1, "SET", "tea", "late")
    assert rig.plain.get("{tea}:guard") == str(2**63 - 1)


async def test_a_claim_alone_shuts_earlier_holders_out(rig: Rig) -> None:
    await rig(5, "tea", by="claim")
    with pytest.raises(pawlock.StaleFence):
        await rig(4, "tea", by="claim")
    with pytest.raises(pawlock.StaleFence):
        await rig(4, "SET", "tea", "late")
    await rig(5, "SET", "tea", "ten")


NO_FENCES = ["garbage", "a much longer text than a fence", "-7", "007", "1.5", "", "a list"]


async def test_a_fence_key_that_holds_no_fence_is_reported(rig: Rig) -> None:
    rig.plain.set("tea", "ten")
    for there, by in itertools.product(NO_FENCES, ["SET", "claim"]):
        rig.plain.delete("{tea}:guard")
        if there == "a list":
            rig.plain.rpush("{tea}:guard", there)
        else:
            rig.plain.set("{tea}:guard", there)
        for fence in (1, 300, 2**63 - 1):
            with pytest.raises(pawlock.WrongKey, match=r"\{tea\}:guard"):
                await (rig(fence, "SET", "tea", "nine") if by == "SET" else rig(fence, "tea", by=by))
        assert rig.plain.get("tea") == "ten", (there, by)
        is_list = there == "a list"
        kept = rig.plain.lrange("{tea}:guard", 0, -1)[0] if is_list else rig.plain.get("{tea}:guard")
        assert kept == there, by


async def test_a_fence_is_kept_a_day_and_its_end_never_comes_nearer(rig: Rig) -> None:
    await rig(5, "SET", "tea", "ten")
    assert 86_000_000 < rig.plain.pttl("{tea}:guard") <= 86_400_000
    await rig(6, "SET", "tea", "ten", keep=1)
    assert rig.plain.pttl("{tea}:guard") > 86_000_000
    await rig(7, "SET", "tea", "ten", keep=None)
    assert rig.plain.pttl("{tea}:guard") == -1
    await rig(8, "SET", "tea", "ten", keep=1)
    assert rig.plain.pttl("{tea}:guard") == -1


async def test_a_command_that_fails_leaves_the_fence_and_nothing_else(rig: Rig) -> None:
    rig.plain.rpush("tea", "a list")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await rig(5, "INCR", "tea")
    assert rig.plain.lrange("tea", 0, -1) == ["a list"]
    with pytest.raises(pawlock.StaleFence):
        await rig(4, "LPUSH", "tea", "late")


async def test_it_survives_a_server_that_forgets_its_scripts(rig: Rig) -> None:
    await rig(5, "SET", "tea", "ten")
    rig.plain.script_flush()
    await rig(6, "SET", "tea", "nine")
    assert rig.plain.get("tea") == "nine"


async def test_bad_calls_send_nothing(rig: Rig) -> None:
    with pytest.raises(pawlock.StaleFence, match="degraded"):
        await rig(0, "SET", "tea", 1)
    for call in (
        (5,),
        (5, "SET"),
        (5, "SET", ""),
        (5, "SET", b"tea", 1),
        (5, "SET", "a}b{", 1),
        ("5", "SET", "a", 1),
    ):
        with pytest.raises(pawlock.ConfigurationError):
            await rig(*call)
    for keep in (0, -1, True, float("inf"), "day"):
        with pytest.raises(pawlock.ConfigurationError, match="keep"):
            await rig(5, "SET", "tea", 1, keep=keep)
    assert not rig.plain.keys("*")


async def test_a_command_whose_first_word_is_no_key_is_refused(rig: Rig) -> None:
    known: dict[str, dict[str, Any]] = rig.plain.command()
    wrong = set[str]()
    for name, told in known.items():
        parts = [
            (told["flags"], told["first_key_pos"]),
            *[(one[2], one[3]) for one in told.get("subcommands", ())],
        ]
        if any("write" in flags and first != 1 for flags, first in parts):
            wrong.add(name)
    assert {"bitop", "xgroup", "lmpop", "flushall"} <= wrong
    rig.plain.set("tea", "ten")
    for name in sorted(wrong):
        for spelt in (name, name.upper(), name.encode()):
            with pytest.raises(pawlock.ConfigurationError):
                await rig(5, spelt, "tea", "tea", "tea")
    assert rig.plain.keys("*") == ["tea"]


def test_a_pipeline_is_refused(server: Server) -> None:
    # Its answers come later, so that nobody would be told of a late holder.
    with redis.Redis(unix_socket_path=server.socket_path) as client:
        pipeline = client.pipeline()
        with pytest.raises(pawlock.ConfigurationError, match="pipeline"):
            RedisGuard(pipeline)
    with pytest.raises(pawlock.ConfigurationError, match=r"Pipeline"):
        AsyncRedisGuard(redis.asyncio.Redis(unix_socket_path=server.socket_path).pipeline())


def test_a_client_of_the_other_api_is_refused(server: Server) -> None:
    with redis.Redis(unix_socket_path=server.socket_path) as client:
        with pytest.raises(pawlock.ConfigurationError, match=r"redis\.asyncio\.Redis"):
            AsyncRedisGuard(client)
        with pytest.raises(pawlock.ConfigurationError, match=r"needs a redis\.Redis"):
            RedisGuard(redis.asyncio.Redis())
        with pytest.raises(pawlock.ConfigurationError, match=r"needs a redis\.Redis"):
            RedisGuard("redis://localhost")  # type: ignore[arg-type]


def test_a_holder_that_was_paused_past_its_lease_is_refused(server: Server) -> None:
    with (
        redis.Redis(unix_socket_path=server.socket_path) as plain,
        pawlock.connect(server.url) as client,
        pawlock.connect(server.url) as other,
    ):
        guard = RedisGuard(plain)
        with other.lock("tea", ttl=0.1, renew=False, on_exit="warn").acquire() as paused:
            with client.lock("tea").acquire(timeout=10) as present:
                guard(present, "SET", "tea", "of the present holder")
            with pytest.raises(pawlock.StaleFence):
                guard(paused, "SET", "tea", "late")
        assert plain.get("tea") == b"of the present holder"


def test_who_is_passed_a_lock_that_the_server_forgot_writes_nothing_and_learns_of_it(server: Server) -> None:
    """A client that does not know of the loss yet passes on what it had, with the numbers that it had."""
    with redis.Redis(unix_socket_path=server.socket_path) as plain, ThreadPoolExecutor() as pool:
        guard = RedisGuard(plain)
        with pawlock.connect(server.url) as client, pawlock.connect(server.url) as other:
            for name in map(str, range(20)):
                lock = client.lock(name, ttl=1.2)
                first = lock.acquire()
                waits = pool.submit(lock.acquire)
                key = f"pawlock:{name}"
                while not client._engine.waits:
                    time.sleep(0.001)
                server.command("DEL", key, f"{{{key}}}:fence", f"{{{key}}}:1:queue", f"{{{key}}}:1:tickets")
                newer = other.lock(name).acquire()
                first.release()
                passed_on = waits.result(10)
                if passed_on.fence != first.fence + 1:
                    passed_on.release()
                    continue
                assert passed_on.fence < newer.fence
                assert guard(newer, "SET", name, "newer")
                with pytest.raises(pawlock.StaleFence):
                    guard(passed_on, "SET", name, "older")
                assert passed_on.lost.wait(pace() * 0.6)
                newer.release()
                return
    pytest.fail("it was passed on in none of 20 tries")
