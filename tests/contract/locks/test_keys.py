"""A key that is shared with other programs: `pawlock.Key` where a name may stand, and waking those who wait."""

from __future__ import annotations

import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import redis

import pawlock
from tests.faults.rig import Api, Client, Lease, until
from tests.support.refusal import case
from tests.support.servers import Server

KEY = pawlock.Key("order:42")
PubSub = Any


def lock(client: Client, key: pawlock.Key = KEY, **options: Any) -> Any:
    return client.lock(cast("str", key), **options)


def rlock(client: Client, key: pawlock.Key = KEY, **options: Any) -> Any:
    return client.rlock(cast("str", key), **options)


def at(server: Server, key: str = "order:42") -> str | None:
    found = server.command("GET", key)
    return found.decode() if isinstance(found, bytes) else None


def asked(server: Server) -> int:
    """How many scripts the server has run."""
    text = cast("bytes", server.command("INFO", "commandstats")).decode()
    found = re.search(r"^cmdstat_evalsha:calls=(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("key", [KEY, pawlock.Key.redisson("n"), pawlock.Key.spring("locks", "n")])
def test_two_clients_exclude_each_other_and_wait(pair: list[Client], key: pawlock.Key) -> None:
    first = lock(pair[0], key).acquire()
    with pytest.raises(pawlock.AcquireTimeout) as caught:
        lock(pair[1], key).acquire(0.2)
    assert caught.value.holder
    waiting = lock(pair[1], key).start(20)
    first.release()
    second = waiting.result(10)
    assert second.fence > first.fence
    second.release()


def test_the_key_is_the_servers_own(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    beside = two.lock("order:42").acquire()
    for factory in (lock, rlock):
        lease = factory(one).acquire()
        assert lease.raw.name == "key:order:42"
        assert at(valkey) == lease.token
        assert factory(two).try_acquire() is None
        lease.release()
        assert at(valkey) is None
    beside.check()


def test_it_may_be_anything(pair: list[Client], valkey: Server) -> None:
    """Other programs do not ask us how to name a key."""
    odd = [
        "{}",
        "a{b",
        "a}b",
        "{a}{b}",
        "{{a}}",
        "100%",
        "a\r\n\x00b",
        "\u2028",
        "{order}:fence",
        "\udcff\udc80",
    ]
    one, two = pair
    for text in [*odd, "x" * 10_000]:
        with case(text[:20]):
            key, raw = pawlock.Key(text), text.encode(errors="surrogateescape")
            lease = lock(one, key, ttl=20).acquire()
            assert valkey.command("GET", raw) == lease.token.encode()
            assert lease.raw.name.encode()
            assert lock(two, key).try_acquire() is None
            lease.extend(20)
            assert two.inspect(as_name(key)).fence == lease.fence
            ticket = lease.raw.detach() if isinstance(one.raw, pawlock.Client) else None
            two.release(as_name(key), ticket or lease.token)
            assert valkey.command("EXISTS", raw) == 0


def test_others_are_excluded_and_waited_for(pair: list[Client], valkey: Server) -> None:
    one, _ = pair
    valkey.command("SET", "order:42", "theirs", "PX", "60000")
    assert lock(one).try_acquire() is None
    before = asked(valkey)
    waiting = lock(one).start(20)
    until(lambda: asked(valkey) >= before + 4, what="it asks again and again")
    assert not waiting.done()
    assert valkey.command("EXISTS", "{order:42}:1:queue") == 0, "nobody queues"
    valkey.command("DEL", "order:42")
    lease = waiting.result(10)
    assert not valkey.command("SET", "order:42", "theirs", "NX", "PX", "1000")
    lease.release()


def test_it_is_renewed_and_its_loss_is_reported(pair: list[Client], valkey: Server) -> None:
    lease = lock(pair[0], ttl=1.0).acquire()
    token = lease.token
    until(lambda: lease.remaining() < 0.8, what="some time")
    until(lambda: lease.remaining() > 0.85, what="a renewal")
    assert at(valkey) == token
    valkey.command("SET", "order:42", "theirs", "PX", "5000")
    until(lambda: lease.state == "lost", what="the loss")
    assert lease.reason == "taken"
    assert at(valkey) == "theirs"


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


def test_it_is_force_released(pair: list[Client], valkey: Server, api: Api) -> None:
    one, two = pair
    lease = lock(one, ttl=2).acquire()
    assert api.run(lambda: two.raw.force_release(KEY, reason="test")).count == 1
    assert at(valkey) is None
    until(lambda: lease.state == "lost", what="the loss")
    assert lease.reason == "taken"
    valkey.command("SET", "order:42", "theirs", "PX", "60000")
    assert api.run(lambda: two.raw.force_release(KEY, reason="test")).count == 1
    assert at(valkey) is None


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


def test_it_is_listed_where_any_key_may_be_a_name(pair: list[Client], valkey: Server, api: Api) -> None:
    """Its key is outside of the namespace, whose keys alone are looked at else."""
    lease = lock(pair[0]).acquire()
    assert api.run(pair[1].raw.locks) == []
    everything = api.connect(valkey.url, namespace="").raw
    (info,) = api.run(everything.locks)
    assert (info.kind, info.name, info.fence, info.foreign) == ("lock", "order:42", lease.fence, False)
    lease.release()


def test_waiting_for_oneself_is_noticed(pair: list[Client], valkey: Server) -> None:
    client = pair[0].raw
    if isinstance(client, pawlock.Client):
        with client.lock(KEY), pytest.raises(pawlock.DeadlockDetected):
            client.lock(KEY).acquire(5)


def test_what_no_other_program_shares(pair: list[Client]) -> None:
    makers: list[Callable[[Any], object]] = [
        lambda c: c.semaphore(KEY, permits=2),
        lambda c: c.rwlock(KEY),
        lambda c: c.latch(KEY, 1),
        lambda c: c.barrier(KEY, 2),
        lambda c: c.election(KEY),
        lambda c: c.once(KEY),
    ]
    for number, make in enumerate(makers):
        with case(number), pytest.raises(pawlock.NotSupported, match="only locks have a form in common"):
            make(pair[0].raw)


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
    for odd in ("a{b", "{a}}b", "{{a}}", "a{b}{c"):
        lock(client, pawlock.Key(odd))
    for odd in ("a}b", "{}", "}{"):
        with case(odd), pytest.raises(pawlock.NotSupported, match="no hash tag"):
            lock(client, pawlock.Key(odd))


def test_the_waiters_of_one_client_leave_turns_for_others(api: Api, valkey: Server) -> None:
    """Local hand-overs need no server: they must come to an end as well."""
    valkey.command("FLUSHALL")
    client = api.connect(valkey.url)
    stop, grants = threading.Event(), [0] * 3

    def work(number: int) -> None:
        while not stop.is_set():
            lease = lock(client).acquire(20)
            time.sleep(0.002)
            grants[number] += 1
            lease.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
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
    lease = lock(pair[0], key).acquire()
    assert heard(ears, 0.1) is None
    lease.release()
    assert heard(ears) == "locks:n"
    lock(pair[1], key, min_hold=0.2).acquire().release()
    assert heard(ears) == "locks:n", "it is closed, and ends sooner than was said"


def test_a_release_fills_the_list(pair: list[Client], valkey: Server) -> None:
    key = pawlock.Key.python_redis_lock("n")
    valkey.command("RPUSH", "lock-signal:n", "old", "older")
    lock(pair[0], key).acquire().release()
    assert valkey.command("LRANGE", "lock-signal:n", "0", "-1") == [b"1"]
    assert 0 < int(str(valkey.command("PTTL", "lock-signal:n"))) <= 1000


def test_a_release_passes_where_the_message_may_not_be_sent(pair: list[Client], valkey: Server) -> None:
    valkey.command("SET", "lock-signal:n", "no list")
    key = pawlock.Key("lock:n", wake=("push", "lock-signal:n", 10))
    lock(pair[0], key).acquire().release()
    assert at(valkey, "lock:n") is None


def test_how_others_spell_it() -> None:
    key = pawlock.Key
    spelled: list[tuple[pawlock.Key, str, object]] = [
        (key.spring("locks", "n"), "locks:n", ("publish", "locks-channel:locks:n", "locks:n")),
        (key.python_redis_lock("n"), "lock:n", ("push", "lock-signal:n", 1000)),
        (key.shedlock("n"), "job-lock:default:n", None),
        (key.shedlock("n", env="prod"), "job-lock:prod:n", None),
        (key.redlock_net("n"), "redlock:n", None),
        (key.redis_semaphore("n"), "mutex:n", None),
        (key.rueidislock("n", majority=1), "rueidislock:0:n", None),
        (key.redisson("n"), "n", None),
    ]
    for made, text, wake in spelled:
        with case(made):
            assert (made.key, made.wake, made.name) == (text, wake, f"key:{text}")
            assert pickle.loads(pickle.dumps(made)) == made


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
    lambda: pawlock.Key("\ud800"),
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


def test_a_key_that_can_never_be_one() -> None:
    for number, make in enumerate(BAD):
        with case(number), pytest.raises(pawlock.ConfigurationError):
            make()


def test_fair_lock_is_refused() -> None:
    for connect in (pawlock.connect, pawlock.connect_async):
        client: Any = connect("redis://127.0.0.1:1")
        with pytest.raises(pawlock.NotSupported, match="programs of other libraries keep no order"):
            client.fair_lock(KEY)
