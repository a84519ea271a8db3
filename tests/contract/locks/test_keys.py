"""A key that is shared with other programs: `pawlock.Key` where a name may stand, yielding to them, and waking them."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import redis

import pawlock
from pawlock._inside import plan_behind
from pawlock.core.protocol.key_text import read_key
from pawlock.primitives.key import SCRIPTS
from tests.faults.rig import APIS, Api, Client, Lease, until
from tests.support.servers import Server

KEY = pawlock.Key("order:42")
PubSub = Any
OFF: dict[str, Any] = {"yield_after": None}


def lock(client: Client, key: pawlock.Key = KEY, **options: Any) -> Any:
    return client.lock(cast("str", key), **options)


def rlock(client: Client, key: pawlock.Key = KEY, **options: Any) -> Any:
    return client.rlock(cast("str", key), **options)


def at(server: Server, key: str = "order:42") -> str | None:
    found = server.command("GET", key)
    return found.decode() if isinstance(found, bytes) else None


def noted(server: Server, field: str, key: str = "order:42") -> int:
    found = server.command("HGET", f"{{{key}}}:fence", field)
    return int(found) if isinstance(found, bytes) else 0


def queue_length(server: Server, key: str = "order:42") -> int:
    return int(str(server.command("ZCARD", f"{{{key}}}:1:queue")))


@pytest.mark.parametrize("factory", [lock, rlock])
def test_the_key_is_the_servers_own(
    pair: list[Client], valkey: Server, factory: Callable[[Client], Any]
) -> None:
    one, two = pair
    lease = factory(one).acquire()
    assert lease.raw.name == "key:order:42"
    assert at(valkey) == lease.token
    assert factory(two).try_acquire() is None
    assert two.lock("order:42").try_acquire() is not None, "a name of the namespace is another lock"
    lease.release()
    assert at(valkey) is None


def test_others_are_excluded_and_waited_for(pair: list[Client], valkey: Server) -> None:
    one, _ = pair
    valkey.command("SET", "order:42", "theirs", "PX", "60000")
    assert lock(one).try_acquire() is None
    waiting = lock(one).start(20)
    until(lambda: queue_length(valkey) == 1, what="a waiter")
    valkey.command("DEL", "order:42")
    lease = waiting.result(10)
    assert not valkey.command("SET", "order:42", "theirs", "NX", "PX", "1000")
    lease.release()


def test_it_is_renewed_and_its_loss_is_reported(pair: list[Client], valkey: Server) -> None:
    lease = lock(pair[0], ttl=0.6).acquire()
    token = lease.token
    until(lambda: lease.remaining() < 0.45, what="some time")
    until(lambda: lease.remaining() > 0.5, what="a renewal")
    assert at(valkey) == token
    valkey.command("SET", "order:42", "theirs", "PX", "5000")
    until(lambda: lease.state == "lost", what="the loss")
    assert lease.reason == "taken"
    assert at(valkey) == "theirs"


def test_an_owner_is_counted_on_the_server(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    first, second = rlock(one, owner="job").acquire(), rlock(two, owner="job").acquire()
    assert at(valkey) == "owner=job@shared"
    assert first.fence == second.fence
    first.release()
    assert at(valkey) == "owner=job@shared"
    second.release()
    assert at(valkey) is None


def test_min_hold_keeps_the_key(pair: list[Client], valkey: Server) -> None:
    lock(pair[0], min_hold=5).acquire().release()
    assert at(valkey) == "closed@min_hold"
    assert lock(pair[1]).try_acquire() is None


def test_fences_rise_across_holds_of_others(pair: list[Client], valkey: Server) -> None:
    fences = []
    for _ in range(3):
        lease = lock(pair[0]).acquire()
        fences.append(lease.fence)
        lease.release()
        valkey.command("SET", "order:42", "theirs", "NX", "PX", "1000")
        valkey.command("DEL", "order:42")
    assert fences == sorted(set(fences))


def as_name(key: pawlock.Key = KEY) -> str:
    """The key, where the rig says that a name stands."""
    return cast("str", key)


def test_it_is_inspected(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    lease = lock(one).acquire()
    info = two.inspect(as_name())
    assert (info.name, info.held, info.foreign, info.fence) == ("key:order:42", True, False, lease.fence)
    assert not two.inspect("key:order:42").held
    lease.release()
    valkey.command("SET", "order:42", "theirs", "PX", "60000")
    info = two.inspect(as_name())
    assert (info.held, info.foreign, info.held_as) == (True, True, "")


@pytest.mark.parametrize("foreign", [False, True])
def test_it_is_force_released(pair: list[Client], valkey: Server, api: Api, foreign: bool) -> None:  # noqa: FBT001
    one, two = pair
    lease = None if foreign else lock(one).acquire()
    if foreign:
        valkey.command("SET", "order:42", "theirs", "PX", "60000")
    forced = api.run(lambda: two.raw.force_release(KEY, reason="test"))
    assert forced.released
    assert at(valkey) is None
    if lease is not None:
        until(lambda: lease.state == "lost", what="the loss")
        assert lease.reason == "taken"


def test_it_is_released_and_extended_by_token(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    lease = lock(one, ttl=20, renew=False).acquire()
    assert two.extend(as_name(), lease.token, 40) > 39
    two.release(as_name(), lease.token)
    assert at(valkey) is None


def test_a_lease_goes_on_elsewhere(pair: list[Client], valkey: Server, api: Api, ears: PubSub) -> None:
    one, two = pair
    ticket = lock(one, pawlock.Key.spring("locks", "n")).acquire().detach()
    lease = Lease(api, api.run(lambda: two.raw.adopt(ticket)))
    assert at(valkey, "locks:n") == lease.token
    assert heard(ears, 0.1) is None
    lease.release()
    assert heard(ears) == "locks:n"


def test_it_is_listed(pair: list[Client], valkey: Server, api: Api) -> None:
    one, two = pair
    lease = lock(one).acquire()

    def listed() -> list[Any]:
        return cast("list[Any]", api.run(two.raw.locks))

    until(lambda: bool(listed()), what="the record of the hold")
    (info,) = listed()
    assert (info.kind, info.name, info.fence, info.foreign) == ("lock", "key:order:42", lease.fence, False)
    lease.release()


def test_waiting_for_oneself_is_noticed(pair: list[Client], valkey: Server) -> None:
    lease = lock(pair[0]).acquire()
    if pair[0].raw.__class__.__name__ == "Client":
        with pytest.raises(pawlock.DeadlockDetected):
            lock(pair[0]).acquire(5)
    lease.release()


@pytest.mark.parametrize(
    "make",
    [
        lambda c: c.semaphore(KEY, permits=2),
        lambda c: c.rwlock(KEY),
        lambda c: c.latch(KEY, 1),
        lambda c: c.barrier(KEY, 2),
        lambda c: c.election(KEY),
        lambda c: c.once(KEY),
    ],
)
def test_what_no_other_program_shares(pair: list[Client], make: Callable[[Any], object]) -> None:
    with pytest.raises(pawlock.NotSupported, match="only locks have a form in common"):
        make(pair[0].raw)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("order:42", pawlock.Key("order:42")),
        ("plain:redisson:n", pawlock.Key("redisson:n")),
        ("redisson:order:42", pawlock.Key.redisson("order:42")),
        ("redisson-fenced:n", pawlock.Key.redisson("n", fenced=True)),
        ("spring:locks:a:b", pawlock.Key.spring("locks", "a:b")),
        ("python-redis-lock:n", pawlock.Key.python_redis_lock("n")),
        ("rueidislock:n", pawlock.Key("rueidislock:0:n")),
        ("shedlock:n", pawlock.Key.shedlock("n")),
        ("redlock-net:n", pawlock.Key.redlock_net("n")),
        ("redis-semaphore:n", pawlock.Key.redis_semaphore("n")),
    ],
)
def test_a_key_as_text(text: str, key: pawlock.Key) -> None:
    assert read_key(text) == key


def test_on_independent_masters(api: Api) -> None:
    with Server() as a, Server() as b, Server() as c:
        fresh = pawlock.RedlockOptions(fresh=True)
        client = api.connect([a.url, b.url, c.url], redlock=fresh)
        lease = lock(client).acquire()
        assert sum(at(server) is not None for server in (a, b, c)) >= 2
        lease.release()
        with pytest.raises(pawlock.NotSupported, match=r"independent masters \(Redlock\)"):
            lock(client, pawlock.Key.redisson("n"))


def test_a_list_in_another_slot_is_refused_in_a_cluster(api: Api) -> None:
    client = api.connect("redis+cluster://127.0.0.1:1")
    with pytest.raises(pawlock.NotSupported, match="another hash slot"):
        lock(client, pawlock.Key.python_redis_lock("n"))
    lock(client, pawlock.Key.python_redis_lock("{n}"))
    lock(client, pawlock.Key.spring("locks", "n"))


def test_the_command_takes_keys(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    valkey.command("SET", "order:42", "theirs", "PX", "60000")

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "pawlock", *words, "--url", valkey.url]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    shown = command("show", "--json", "--key", "order:42")
    (info,) = json.loads(shown.stdout)["locks"]
    assert (info["name"], info["held"], info["foreign"]) == ("key:order:42", True, True)
    forced = command("force-release", "--key", "order:42", "--yes", "--reason", "test")
    assert forced.returncode == 0, forced.stderr
    assert at(valkey) is None
    taken = command("acquire", "--key", "--ticket", "--ttl", "20", "python-redis-lock:n")
    assert taken.returncode == 0, taken.stderr
    assert at(valkey, "lock:n") is not None
    assert command("renew", taken.stdout.strip()).returncode == 0
    with ThreadPoolExecutor(1) as waiter:
        # What wakes them is there for a second only, and the command may take longer to end.
        woken = waiter.submit(valkey.command, "BLPOP", "lock-signal:n", "50", timeout=60)
        assert command("release", taken.stdout.strip()).returncode == 0
        assert woken.result() == [b"lock-signal:n", b"1"]
    assert at(valkey, "lock:n") is None
    bad = command("show", "--key", "spring:locks")
    assert bad.returncode == 64
    assert "spring:locks:order:42" in bad.stderr


def contend(valkey: Server, holder: Lease, client: Client, **options: Any) -> Any:
    """Somebody of pawlock waits behind a holder that has had the key for longer than `yield_after`."""
    waiting = lock(client, **options).start(20)
    until(lambda: queue_length(valkey) == 1, what="a waiter")
    until(
        # It varies by a fifth.
        lambda: _now_ms(valkey) - noted(valkey, "since") > options.get("yield_after", 0.25) * 1200,
        what="the time after which it yields",
    )
    assert not waiting.done()
    return waiting


def _now_ms(server: Server) -> int:
    time_of = cast("list[bytes]", server.command("TIME"))
    return int(time_of[0]) * 1000 + int(time_of[1]) // 1000


SLOW: dict[str, Any] = {"yield_after": 0.1, "yield_for": 3.0}


def test_the_key_is_left_free_for_others(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    holder = lock(one, **SLOW).acquire()
    waiting = contend(valkey, holder, two, **SLOW)
    holder.release()
    assert at(valkey) is None
    assert noted(valkey, "open") > _now_ms(valkey)
    assert noted(valkey, "since") == noted(valkey, "open")
    # Nobody of pawlock takes it meanwhile, and all are told until when.
    assert lock(one).try_acquire() is None
    assert rlock(one, owner="job").try_acquire() is None
    assert queue_length(valkey) == 1
    assert valkey.command("SET", "order:42", "theirs", "NX", "PX", "60000")
    assert not waiting.done()
    # A holder of another program is waited for longer than the window.
    valkey.command("DEL", "order:42")
    lease = waiting.result(20)
    assert lease.fence > holder.fence
    assert _now_ms(valkey) >= noted(valkey, "open")
    lease.release()


def test_after_the_window_the_first_waiter_has_it(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    options: dict[str, Any] = {"yield_after": 0.05, "yield_for": 0.2}
    holder = lock(one, **options).acquire()
    waiting = contend(valkey, holder, two, **options)
    holder.release()
    lease = waiting.result(20)
    assert noted(valkey, "since") >= noted(valkey, "open") > 0, "a grant of a free name counts anew"
    lease.release()


@pytest.mark.parametrize(
    "options", [{"yield_after": None}, {"yield_after": 0}, {"yield_after": 0.05, "yield_for": 0}]
)
def test_without_yielding_it_is_handed_off(
    pair: list[Client], valkey: Server, options: dict[str, Any]
) -> None:
    one, two = pair
    holder = lock(one, **options).acquire()
    waiting = lock(two, **options).start(20)
    until(lambda: queue_length(valkey) == 1, what="a waiter")
    until(lambda: _now_ms(valkey) - noted(valkey, "since") > 100, what="some time")
    holder.release()
    assert at(valkey) is not None
    waiting.result(10).release()
    assert noted(valkey, "open") == 0


def test_a_short_tenure_is_handed_off(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    options: dict[str, Any] = {"yield_after": 60.0, "yield_for": 3.0}
    holder = lock(one, **options).acquire()
    waiting = lock(two, **options).start(20)
    until(lambda: queue_length(valkey) == 1, what="a waiter")
    holder.release()
    assert at(valkey) is not None
    waiting.result(10).release()


def test_a_shared_owner_yields_too(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    holder = rlock(one, owner="job", **SLOW).acquire()
    waiting = contend(valkey, holder, two, **SLOW)
    holder.release()
    assert at(valkey) is None
    assert noted(valkey, "open") > _now_ms(valkey)
    assert queue_length(valkey) == 1
    waiting.result(20).release()


def test_how_long_it_is_passed_on_varies_by_a_fifth(pair: list[Client], valkey: Server) -> None:
    """Of two who poll at one period, the same one would otherwise be the first to ask in window after window."""
    yielded: dict[bool, bool] = {}
    while len(yielded) < 2:
        run_ms, open_ms = _released_after(pair, valkey, 460)
        # A run of nearly that length is not told from it on a busy machine.
        if abs(run_ms - 500) > 70 and open_ms is not None:
            yielded[run_ms < 500] = open_ms > 0
    assert yielded == {True: True, False: False}


def _released_after(pair: list[Client], valkey: Server, ms: int) -> tuple[float, int | None]:
    """How long this run of grants may be, and until when the key is left free; None: it was released too late."""
    options: dict[str, Any] = {"yield_after": 0.5, "yield_for": 3.0}
    valkey.command("FLUSHALL")
    holder = lock(pair[0], **options).acquire()
    waiting = lock(pair[1], **options).start(20)
    until(lambda: queue_length(valkey) == 1, what="a waiter")
    since = noted(valkey, "since")
    until(lambda: _now_ms(valkey) - since >= ms, what="most of the time")
    in_time = _now_ms(valkey) - since < ms + 80
    holder.release()
    left_free = noted(valkey, "open")
    valkey.command("HDEL", "{order:42}:fence", "open")
    waiting.result(20).release()
    return 500 + 500 * (since * 31 % 401 - 200) / 1000, left_free if in_time else None


def _asked(server: Server) -> int:
    return _said(server, "commandstats", "cmdstat_evalsha")


def _said(server: Server, section: str, field: str) -> int:
    text = cast("bytes", server.command("INFO", section)).decode()
    found = re.search(rf"^{field}:(?:calls=)?(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.mark.parametrize(
    ("key", "options", "yield_ms"),
    [
        (pawlock.Key("k"), {}, "60"),
        (pawlock.Key.spring("locks", "k"), {}, "95"),
        (pawlock.Key.spring("locks", "k"), {"yield_for": 0.02}, "20"),
        (pawlock.Key.python_redis_lock("k"), {}, "60"),
    ],
)
def test_it_is_left_free_for_as_long_as_the_others_need(
    key: pawlock.Key, options: dict[str, Any], yield_ms: str, valkey: Server
) -> None:
    """Spring's spin lock polls every 100 ms, and would find a shorter time of 60 ms only now and then."""
    with pawlock.connect(valkey.url) as client:
        plan = plan_behind(client.lock(key, **options))
        assert cast("Any", plan.primitive).shared.split()[:2] == ["250", yield_ms]


def test_the_waiters_of_one_client_yield_too(api: Api, valkey: Server) -> None:
    """Local hand-overs need no server: they must come to an end as well."""
    valkey.command("FLUSHALL")
    client = api.connect(valkey.url)
    options: dict[str, Any] = {"yield_after": 0.1, "yield_for": 0.3}
    stop, grants = threading.Event(), [0] * 3

    def work(number: int) -> None:
        while not stop.is_set():
            lease = lock(client, **options).acquire(20)
            time.sleep(0.002)
            grants[number] += 1
            lease.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: noted(valkey, "open") > 0, what="a window")
        taken: list[bool] = []

        def take() -> bool:
            taken.append(bool(valkey.command("SET", "order:42", "theirs", "NX", "PX", "60000")))
            return taken[-1]

        until(take, what="a stranger's turn")
    finally:
        stop.set()
        valkey.command("DEL", "order:42")
        for thread in threads:
            thread.join(30)
    assert min(grants) > 0


@pytest.fixture
def ears(valkey: Server) -> Iterator[PubSub]:
    with redis.Redis(unix_socket_path=valkey.socket_path, decode_responses=True) as client:
        subscription = client.pubsub(ignore_subscribe_messages=True)
        subscription.subscribe("locks-channel:locks:n")
        subscription.get_message(timeout=1)
        yield subscription
        subscription.close()


def heard(ears: PubSub, timeout: float = 5.0) -> str | None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = ears.get_message(timeout=0.05)
        if found is not None:
            return str(found["data"])
    return None


def test_a_release_is_published(pair: list[Client], valkey: Server, ears: PubSub) -> None:
    key = pawlock.Key.spring("locks", "n")
    holder = lock(pair[0], key).acquire()
    waiting = lock(pair[1], key, **OFF).start(20)
    until(lambda: queue_length(valkey, "locks:n") == 1, what="a waiter")
    holder.release()
    lease = waiting.result(10)
    assert heard(ears, 0.2) is None, "a hand-off leaves nothing free"
    lease.release()
    assert heard(ears) == "locks:n"


def test_a_release_fills_the_list(pair: list[Client], valkey: Server) -> None:
    key = pawlock.Key.python_redis_lock("n")
    valkey.command("RPUSH", "lock-signal:n", "old", "older")
    lock(pair[0], key).acquire().release()
    assert valkey.command("LRANGE", "lock-signal:n", "0", "-1") == [b"1"]
    assert 0 < int(str(valkey.command("PTTL", "lock-signal:n"))) <= 1000


def test_a_window_wakes_others(pair: list[Client], valkey: Server, ears: PubSub) -> None:
    key = pawlock.Key.spring("locks", "n")
    holder = lock(pair[0], key, **SLOW).acquire()
    waiting = lock(pair[1], key, **SLOW).start(20)
    until(lambda: queue_length(valkey, "locks:n") == 1, what="a waiter")
    until(lambda: _now_ms(valkey) - noted(valkey, "since", "locks:n") > 120, what="some time")
    holder.release()
    assert heard(ears) == "locks:n"
    waiting.result(20).release()


def test_a_release_passes_where_the_message_may_not_be_sent(pair: list[Client], valkey: Server) -> None:
    valkey.command("SET", "lock-signal:n", "no list")
    key = pawlock.Key("lock:n", wake=("push", "lock-signal:n", 10))
    lock(pair[0], key).acquire().release()
    assert at(valkey, "lock:n") is None


def test_ordinary_scripts_know_nothing_of_it() -> None:
    for variants in SCRIPTS.values():
        for script in variants.values():
            assert b"read_window" in script.source or b"redisson" in script.source
    from pawlock.primitives import mutex

    for name in vars(mutex):
        script = getattr(mutex, name)
        if type(script).__name__ == "Script":
            assert b"since" not in script.source
            assert b"--@" not in script.source


@pytest.mark.parametrize(
    ("key", "text", "wake"),
    [
        (pawlock.Key.spring("locks", "n"), "locks:n", ("publish", "locks-channel:locks:n", "locks:n")),
        (pawlock.Key.python_redis_lock("n"), "lock:n", ("push", "lock-signal:n", 1000)),
        (pawlock.Key.shedlock("n"), "job-lock:default:n", None),
        (pawlock.Key.shedlock("n", env="prod"), "job-lock:prod:n", None),
        (pawlock.Key.redlock_net("n"), "redlock:n", None),
        (pawlock.Key.redis_semaphore("n"), "mutex:n", None),
        (pawlock.Key.rueidislock("n", majority=1), "rueidislock:0:n", None),
        (pawlock.Key.redisson("n"), "n", None),
    ],
)
def test_how_others_spell_it(key: pawlock.Key, text: str, wake: object) -> None:
    assert (key.key, key.wake, key.name) == (text, wake, f"key:{text}")
    assert pickle.loads(pickle.dumps(key)) == key


def test_rueidislock_has_three_keys(pair: list[Client], valkey: Server, api: Api) -> None:
    keys = pawlock.Key.rueidislock("n")
    assert [key.key for key in keys] == [f"rueidislock:{i}:n" for i in range(3)]
    raw = pair[0].raw.multi_lock([*keys, "n"])
    lease = Lease(api, api.run(raw.acquire))
    assert valkey.command("EXISTS", *[key.key for key in keys], "pawlock:n") == 4
    lease.release()
    assert valkey.command("EXISTS", *[key.key for key in keys], "pawlock:n") == 0


BAD: list[Any] = [
    lambda: pawlock.Key(""),
    lambda: pawlock.Key("x" * 201),
    lambda: pawlock.Key("a%b"),
    lambda: pawlock.Key(cast("Any", b"bytes")),
    lambda: pawlock.Key(cast("Any", KEY)),
    lambda: pawlock.Key("n", wire=cast("Any", "java")),
    lambda: pawlock.Key("n", fence="redisson"),
    lambda: pawlock.Key("n", wake=cast("Any", "channel")),
    lambda: pawlock.Key("n", wake=cast("Any", ("publish", "", "x"))),
    lambda: pawlock.Key("n", wake=cast("Any", ("publish", "c", 1))),
    lambda: pawlock.Key("n", wake=("push", "l", 0)),
    lambda: pawlock.Key("n", wire="redisson", wake=("publish", "c", "m")),
    lambda: pawlock.Key.spring("", "n"),
    lambda: pawlock.Key.spring(cast("Any", None), "n"),
    lambda: pawlock.Key.rueidislock("n", majority=cast("Any", 0)),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_key_that_can_never_be_one(number: int) -> None:
    with pytest.raises(pawlock.ConfigurationError):
        BAD[number]()


@pytest.mark.parametrize(
    "options",
    [
        {"yield_after": -1},
        {"yield_after": "soon"},
        {"yield_for": 11},
        {"yield_for": float("nan")},
        {"yield_for": True},
    ],
)
def test_bad_options(pair: list[Client], options: dict[str, Any]) -> None:
    with pytest.raises(pawlock.ConfigurationError, match="yield_"):
        lock(pair[0], **options)


def test_what_is_for_keys_alone(pair: list[Client]) -> None:
    for option in ("yield_after", "yield_for"):
        with pytest.raises(pawlock.ConfigurationError, match=r"use pawlock\.Key"):
            pair[0].lock("n", **{option: 1})


@pytest.mark.parametrize("api_name", APIS)
def test_fair_lock_is_refused(api_name: str) -> None:
    connect: Any = pawlock.connect if api_name == "threads" else pawlock.connect_async
    client = connect("redis://127.0.0.1:1")
    with pytest.raises(pawlock.NotSupported, match="programs of other libraries keep no order"):
        client.fair_lock(KEY)
