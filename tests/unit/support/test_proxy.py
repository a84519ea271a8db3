from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.pace import pace
from tests.support.proxy import Proxy, Request
from tests.support.resp import Wire
from tests.support.servers import Server


@pytest.fixture
def server(valkey: Server) -> Server:
    valkey.command("FLUSHALL")
    return valkey


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as started:
        yield started


def connect(proxy: Proxy, *, timeout: float = 2.0, protocol: int = 2) -> redis.Redis:
    return redis.Redis.from_url(
        proxy.url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        protocol=protocol,
        retry=Retry(NoBackoff(), 0),
        max_connections=1,
    )


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    with connect(proxy) as made:
        yield made


@pytest.fixture
def hasty(proxy: Proxy) -> Iterator[redis.Redis]:
    with connect(proxy, timeout=0.2) as made:
        yield made


@pytest.mark.parametrize("protocol", [2, 3])
def test_it_is_transparent_without_rules(proxy: Proxy, server: Server, protocol: int) -> None:
    with connect(proxy, protocol=protocol) as client:
        big = b"x" * 300_000
        assert client.set("big", big)
        assert client.get("big") == big
        with client.pipeline(transaction=True) as pipe:
            assert pipe.incr("n").incr("n").hgetall("none").execute() == [1, 2, {}]
        assert client.evalsha(client.script_load("return {1, {ARGV[1]}}"), 0, "a") == [1, [b"a"]]
        with pytest.raises(redis.ResponseError):
            client.lpush("n", 1)
        assert [client.set(str(n), n) for n in range(50)] == [True] * 50
    assert proxy.accepted == 1
    assert server.command("GET", "49") == b"49"
    assert len(proxy.requests("SET")) >= 51


def test_upstream_by_url(server: Server) -> None:
    for url in (server.url, server.unix_url):
        with Proxy(url) as proxy, connect(proxy) as client:
            assert client.ping()
    with pytest.raises(ValueError, match="rediss"):
        Proxy("rediss://127.0.0.1:1")


def test_swallow_reply(proxy: Proxy, client: redis.Redis, hasty: redis.Redis, server: Server) -> None:
    rule = proxy.swallow_reply("INCR")
    with pytest.raises(redis.TimeoutError):
        hasty.incr("n")
    rule.wait()
    assert (rule.hits, server.command("GET", "n")) == (1, b"1")
    assert client.incr("n") == 2
    assert rule.hits == 1


def test_match_by_argument_predicate_and_number(proxy: Proxy, hasty: redis.Redis) -> None:
    third = proxy.swallow_reply("name:1", nth=3)
    assert (hasty.incr("name:1"), hasty.incr("other"), hasty.incr("name:1")) == (1, 1, 2)
    assert (third.seen, third.hits) == (2, 0)
    with pytest.raises(redis.TimeoutError):
        hasty.incr("name:1")
    assert (third.seen, third.hits) == (3, 1)

    def is_long(request: Request) -> bool:
        return request.command == "SET" and len(request.args[2]) > 5

    every = proxy.drop_request(is_long, times=None)
    assert hasty.set("k", "short")
    for _ in range(2):
        with pytest.raises(redis.TimeoutError):
            hasty.set("k", "longer than five")
    assert every.hits == 2
    every.remove()
    assert hasty.set("k", "longer than five")


def test_match_a_script_by_its_sha(proxy: Proxy, hasty: redis.Redis) -> None:
    sha = hasty.script_load("return redis.call('INCR', KEYS[1])")
    rule = proxy.swallow_reply(sha)
    assert hasty.incr("n") == 1
    with pytest.raises(redis.TimeoutError):
        hasty.evalsha(sha, 1, "n")
    proxy.wait_hit(rule)
    assert hasty.get("n") == b"2"


def test_kill_on_reply(proxy: Proxy, client: redis.Redis, server: Server) -> None:
    assert client.ping()
    rule = proxy.kill_on_reply("INCR")
    with pytest.raises(redis.ConnectionError, match=r"[Rr]eset|closed"):
        client.incr("n")
    assert (rule.hits, server.command("GET", "n")) == (1, b"1")
    assert client.incr("n") == 2


def test_reset_before_the_server_sees_it(proxy: Proxy, client: redis.Redis, server: Server) -> None:
    rule = proxy.reset("INCR")
    with pytest.raises(redis.ConnectionError):
        client.incr("n")
    assert (rule.hits, server.command("GET", "n")) == (1, None)


def test_a_reset_is_a_reset_on_the_wire(proxy: Proxy) -> None:
    proxy.reset("PING")
    with Wire(("127.0.0.1", proxy.port)) as wire:
        wire.send("PING")
        with pytest.raises(ConnectionResetError, match="by peer"):
            wire.receive()


def test_drop_request(proxy: Proxy, hasty: redis.Redis, server: Server) -> None:
    rule = proxy.drop_request("INCR")
    with pytest.raises(redis.TimeoutError):
        hasty.incr("n")
    assert (rule.hits, server.command("GET", "n")) == (1, None)


def test_hold_reply_until_released(proxy: Proxy, client: redis.Redis, server: Server) -> None:
    rule = proxy.hold_reply("INCR")
    with Wire(("127.0.0.1", proxy.port), timeout=0.1) as wire:
        wire.send("INCR", "n")
        wire.send("PING")
        rule.wait()
        assert server.command("GET", "n") == b"1"
        assert client.incr("n") == 2
        with pytest.raises(TimeoutError):
            wire.receive()
        rule.release()
        assert [wire.receive(), wire.receive()] == [1, "PONG"]


def test_hold_reply_for_seconds(proxy: Proxy, client: redis.Redis) -> None:
    proxy.hold_reply("INCR", seconds=0.3)
    start = time.monotonic()
    assert client.incr("n") == 1
    assert 0.3 <= time.monotonic() - start < pace() * 1.5


def test_held_request_arrives_after_its_client_has_gone(
    proxy: Proxy, client: redis.Redis, hasty: redis.Redis, server: Server
) -> None:
    rule = proxy.hold_request("mine")
    with pytest.raises(redis.TimeoutError):
        hasty.set("k", "mine")
    hasty.close()
    assert (rule.hits, server.command("GET", "k")) == (1, None)
    assert client.set("k", "theirs")
    rule.release()
    deadline = time.monotonic() + 2
    while server.command("GET", "k") != b"mine" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.command("GET", "k") == b"mine"


def test_a_client_that_only_ends_its_sending_gets_its_reply(proxy: Proxy) -> None:
    rule = proxy.hold_reply("INCR", seconds=0.1)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=2) as plain:
        plain.sendall(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n")
        plain.shutdown(socket.SHUT_WR)
        assert plain.recv(100) == b":1\r\n"
        assert plain.recv(100) == b""
    assert rule.hits == 1


def test_duplicate_request(proxy: Proxy, server: Server) -> None:
    rule = proxy.duplicate_request("INCR")
    with Wire(("127.0.0.1", proxy.port)) as wire:
        wire.send("INCR", "n")
        wire.send("GET", "n")
        assert [wire.receive(), wire.receive(), wire.receive()] == [1, 2, b"2"]
    assert rule.hits == 1


def test_duplicate_request_late(proxy: Proxy, client: redis.Redis, server: Server) -> None:
    rule = proxy.duplicate_request_late("INCR")
    assert client.incr("n") == 1
    assert client.decr("n") == 0
    assert rule.hits == 0
    rule.release()
    rule.wait()
    assert server.command("GET", "n") == b"1"
    timed = proxy.duplicate_request_late("INCR", seconds=0.1)
    assert client.incr("n") == 2
    timed.wait()
    assert client.get("n") == b"3"


def test_a_late_duplicate_outlives_its_connection(proxy: Proxy, client: redis.Redis, server: Server) -> None:
    rule = proxy.duplicate_request_late("INCR", seconds=0.2)
    assert client.incr("n") == 1
    client.close()
    rule.wait()
    assert server.command("GET", "n") == b"2"


def test_delay(proxy: Proxy, client: redis.Redis) -> None:
    assert client.ping()
    proxy.delay(requests=0.1, replies=0.1)
    start = time.monotonic()
    with client.pipeline(transaction=False) as pipe:
        for _ in range(20):
            pipe.incr("n")
        assert pipe.execute() == list(range(1, 21))
    assert 0.2 <= time.monotonic() - start < pace() * 1.0, "what is sent together arrives together"
    proxy.delay()
    took = []
    for _ in range(5):
        start = time.monotonic()
        assert client.ping()
        took.append(time.monotonic() - start)
    assert min(took) < pace() * 0.1, "it is not slow any more"


def test_blackhole(proxy: Proxy, hasty: redis.Redis, server: Server) -> None:
    with Wire(("127.0.0.1", proxy.port), timeout=0.2) as wire:
        assert wire.command("PING") == "PONG"
        proxy.blackhole()
        wire.send("INCR", "n")
        with pytest.raises(redis.TimeoutError):
            hasty.ping()
        with pytest.raises(TimeoutError):
            wire.receive()
        assert server.command("GET", "n") is None
        proxy.blackhole(on=False)
        assert wire.receive() == 1
    assert hasty.ping()


def test_refuse(proxy: Proxy, client: redis.Redis) -> None:
    assert client.ping()
    port = proxy.port
    proxy.refuse()
    proxy.refuse()
    assert client.ping(), "connections that exist go on"
    with connect(proxy) as other, pytest.raises(redis.ConnectionError, match="refused"):
        other.ping()
    proxy.refuse(on=False)
    assert proxy.port == port
    with connect(proxy) as other:
        assert other.ping()


def test_reset_all(proxy: Proxy, client: redis.Redis) -> None:
    with Wire(("127.0.0.1", proxy.port)) as wire:
        assert wire.command("PING") == "PONG"
        assert client.ping()
        assert (proxy.connections, proxy.reset_all()) == (2, 2)
        with pytest.raises(ConnectionResetError, match="by peer"):
            wire.receive()
    assert client.ping()
    assert proxy.accepted == 3


@pytest.mark.parametrize("protocol", [2, 3])
def test_push_messages_are_not_replies_and_can_be_cut(proxy: Proxy, server: Server, protocol: int) -> None:
    with connect(proxy, protocol=protocol) as client, client.pubsub() as subscription:
        subscription.subscribe("wake")
        first = subscription.get_message(timeout=2)
        assert first is not None
        assert first["type"] == "subscribe"
        server.command("PUBLISH", "wake", "one")
        message = subscription.get_message(timeout=2)
        assert message is not None
        assert message["data"] == b"one"
        rule = proxy.cut_push("wake")
        server.command("PUBLISH", "wake", "lost")
        rule.wait()
        # A reply on the same connection still belongs to its request.
        swallowed = proxy.swallow_reply("PING")
        subscription.ping()
        swallowed.wait()
        rule.remove()
        server.command("PUBLISH", "wake", "two")
        message = subscription.get_message(timeout=2)
        assert message is not None
        assert message["data"] == b"two"


def test_invalidations_do_not_shift_replies(proxy: Proxy, server: Server) -> None:
    with Wire(("127.0.0.1", proxy.port)) as wire:
        wire.command("HELLO", 3)
        wire.command("CLIENT", "TRACKING", "ON")
        wire.command("GET", "k")
        server.command("SET", "k", "v")
        assert wire.receive() == [b"invalidate", [b"k"]]
        wire.command("GET", "k")
        proxy.cut_push("invalidate")
        rule = proxy.swallow_reply("GET")
        server.command("SET", "k", "w")
        wire.send("GET", "k")
        wire.send("PING")
        assert wire.receive() == "PONG"
        assert rule.hits == 1


def test_a_server_that_is_down_and_comes_back() -> None:
    with Server() as server, Proxy(server) as proxy, connect(proxy) as client:
        assert client.ping()
        server.kill()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.ping()
        server.start()
        assert client.ping()


def test_wait_says_what_it_saw(proxy: Proxy, client: redis.Redis) -> None:
    rule = proxy.swallow_reply("INCR", nth=2)
    client.incr("n")
    with pytest.raises(TimeoutError, match="swallow reply: seen 1, hits 0"):
        proxy.wait_hit(rule, 0.05)
    with pytest.raises(ValueError, match="nth"):
        proxy.swallow_reply(nth=0)
    with pytest.raises(ValueError, match="times"):
        proxy.swallow_reply(times=0)


def test_clear_mends_everything(proxy: Proxy, client: redis.Redis) -> None:
    proxy.drop_request("PING", times=None)
    held = proxy.hold_reply("INCR")
    with Wire(("127.0.0.1", proxy.port)) as wire:
        wire.send("INCR", "n")
        held.wait()
        proxy.delay(requests=5.0)
        proxy.blackhole()
        proxy.refuse()
        proxy.clear()
        assert wire.receive() == 1
    assert client.ping()


def test_a_predicate_that_fails_is_told_at_the_end(server: Server) -> None:
    def broken(_: Request) -> bool:
        raise LookupError("broken predicate")

    proxy = Proxy(server).start()
    proxy.drop_request(broken)
    with connect(proxy) as client, pytest.raises(redis.ConnectionError):
        client.ping()
    with pytest.raises(ExceptionGroup) as caught:
        proxy.stop()
    assert isinstance(caught.value.exceptions[0], LookupError)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=1)


def test_start_and_stop_may_be_repeated(server: Server) -> None:
    proxy = Proxy(server)
    proxy.stop()
    for _ in range(2):
        with proxy, connect(proxy) as client:
            assert client.ping()
            with pytest.raises(RuntimeError, match="already"):
                proxy.start()
    with pytest.raises(RuntimeError, match="not running"):
        proxy.blackhole()
