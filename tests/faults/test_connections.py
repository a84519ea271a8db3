"""What a server does to connections and users: each has an outcome of its own."""

from __future__ import annotations

import contextlib
import time

import pytest
import redis

import pawlock
from tests.faults.conftest import start
from tests.faults.rig import (
    Api,
    Client,
    helper,
    in_thread,
    remains,
    set_config,
    teach,
    until,
    value,
    waiters,
)
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.fault


@pytest.fixture
def near(api: Api, broken: Server) -> Client:
    """A client straight at the server that the test breaks, connected."""
    client = api.connect(broken.url)
    client.inspect("warm")
    return client


@pytest.fixture
def second(api: Api, broken: Server) -> Client:
    client = api.connect(broken.url)
    client.inspect("warm")
    return client


def test_row_49_client_pause(near: Client, broken: Server) -> None:
    lease = near.lock("held", ttl=1, ticket_ttl=0.9).acquire(5)
    broken.command("CLIENT", "PAUSE", "1500", "WRITE")
    waiting = near.lock("other").start(10)
    # The local clock decides, not the server that says nothing.
    until(lambda: lease.state == "lost", timeout=1.4, what="the loss")
    waiting.result(8).release()
    broken.command("CLIENT", "UNPAUSE")


@pytest.mark.parametrize("whom", ["holder", "waiter", "all"])
def test_row_50_client_kill(whom: str, near: Client, second: Client, broken: Server) -> None:
    with redis.Redis(unix_socket_path=broken.socket_path) as plain:

        def others(known: set[str]) -> list[str]:
            return [str(c["id"]) for c in plain.client_list() if str(c["id"]) not in known]

        own = {str(plain.client_id())}
        lease = near.lock(ttl=20, renew=0.2).acquire(5)
        holding = set(others(own))
        waiting = second.lock(ttl=20, ticket_ttl=3).start(20)
        until(lambda: waiters(broken, "n") == 1, what="the waiter's ticket")
        for _ in range(3):
            present = others(own)
            doomed = {
                "holder": [i for i in present if i in holding],
                "waiter": [i for i in present if i not in holding],
                "all": present,
            }
            for number in doomed[whom]:
                with contextlib.suppress(redis.ResponseError):
                    plain.client_kill_filter(_id=number)
            time.sleep(0.05)
        before = lease.raw.valid_until
        until(lambda: lease.raw.valid_until > before, what="a renewal")
        lease.release()
        began = time.monotonic()
        got = waiting.result(8)
        # At worst it asks at the next third of its ticket.
        assert time.monotonic() - began < pace() * 3
        got.release()
    assert remains(broken) == []


def test_row_50_maxclients(api: Api, broken: Server) -> None:
    set_config(broken, "maxclients", "4")
    taken = [redis.Connection(port=broken.port) for _ in range(4)]
    client = api.connect(broken.url)
    try:
        for connection in taken:
            with contextlib.suppress(redis.ConnectionError):
                connection.connect()
        with pytest.raises(pawlock.BackendUnavailable, match="max number of clients"):
            client.lock(unavailable_after=0.3).acquire(5)
        waiting = client.lock().start(10)
        time.sleep(0.1)
    finally:
        for connection in taken:
            connection.disconnect()
    waiting.result(8).release()


def test_row_50_the_server_drops_idle_connections(near: Client, broken: Server) -> None:
    near.lock().acquire(5).release()
    with redis.Redis(unix_socket_path=broken.socket_path) as plain:
        plain.client_kill_filter(skipme=True, _type="normal")
        plain.client_kill_filter(skipme=True, _type="pubsub")
    began = time.monotonic()
    near.lock().acquire(5).release()
    assert time.monotonic() - began < pace() * 1.5


def test_row_50_a_connection_that_ended_between_two_renewals_is_no_failed_renewal(
    near: Client, broken: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a proxy that keeps idle connections for less than a third of the TTL."""
    lease = near.lock(ttl=3).acquire(5)
    with redis.Redis(unix_socket_path=broken.socket_path) as plain:
        for renewals in (1, 2):
            plain.client_kill_filter(skipme=True, _type="normal")
            plain.client_kill_filter(skipme=True, _type="pubsub")
            until(lambda wanted=renewals: near.counter("renewed") >= wanted, what="a renewal")  # type: ignore[misc]
    assert lease.state == "held"
    assert [one.getMessage() for one in caplog.records if one.name == "pawlock.renewal"] == []
    lease.release()


def test_row_51_no_permission(near: Client, broken: Server, api: Api) -> None:
    broken.command(
        "ACL",
        "SETUSER",
        "poor",
        "on",
        ">p",
        "~pawlock:allowed*",
        "~{pawlock:allowed*",
        "&*",
        "+@all",
        "-@dangerous",
    )
    url = broken.url.replace("redis://", "redis://poor:p@")
    client = api.connect(url)
    client.lock("allowed").acquire(5).release()
    began = time.monotonic()
    with pytest.raises(pawlock.BackendDenied, match=r"NOPERM|permission"):
        client.lock("forbidden").acquire(5)
    broken.command("ACL", "SETUSER", "poor", "-evalsha", "-eval")
    with pytest.raises(pawlock.BackendDenied, match="eval"):
        client.lock("allowed").try_acquire()
    assert time.monotonic() - began < pace() * 3


def test_row_51_wrong_password(broken: Server, api: Api) -> None:
    broken.command("ACL", "SETUSER", "u", "on", ">right", "~*", "&*", "+@all")
    for user in ("u:wrong", "nobody:x"):
        began = time.monotonic()
        client = api.connect(broken.url.replace("redis://", f"redis://{user}@"))
        with pytest.raises(pawlock.BackendDenied) as caught:
            client.lock().acquire(5)
        assert time.monotonic() - began < pace() * 3
        assert "wrong" not in str(caught.value).replace("WRONGPASS", "")
    api.connect(broken.url.replace("redis://", "redis://u:right@")).lock().acquire(5).release()


def test_row_51_password_rotated_while_held(broken: Server, api: Api) -> None:
    broken.command("ACL", "SETUSER", "u", "on", ">old", "~*", "&*", "+@all")
    client = api.connect(broken.url.replace("redis://", "redis://u:old@"))
    lease = client.lock(ttl=1.2, ticket_ttl=0.9, unavailable_after=0.5).acquire(5)
    broken.command("ACL", "SETUSER", "u", "resetpass", ">new")
    with redis.Redis(unix_socket_path=broken.socket_path) as plain:
        plain.client_kill_filter(user="u")
    until(lambda: lease.state == "lost", timeout=5, what="the loss at its deadline")
    with pytest.raises(pawlock.BackendDenied):
        client.lock("other").acquire(5)
    fresh = api.connect(broken.url.replace("redis://", "redis://u:new@")).lock().acquire(5)
    assert fresh.fence > lease.fence


def test_row_35_a_master_that_becomes_a_replica(near: Client, broken: Server, api: Api) -> None:
    with start("valkey") as master:
        lease = near.lock(ttl=20, ticket_ttl=1.2, renew=0.2, unavailable_after=0.5).acquire(5)
        set_config(broken, "replica-serve-stale-data", "yes")
        # A master that nobody answers at: the data stay.
        broken.command("REPLICAOF", "127.0.0.1", "1")
        until(lambda: lease.state == "suspect", timeout=5, what="failing renewals")
        with pytest.raises(pawlock.BackendReadOnly):
            near.lock("other", unavailable_after=0.5).acquire(5)
        broken.command("REPLICAOF", "NO", "ONE")
        until(lambda: lease.state == "held", timeout=8, what="good renewals")
        lease.release()
        assert master.running


def test_row_48_a_replica_at_the_first_contact(broken: Server, api: Api) -> None:
    broken.command("REPLICAOF", "127.0.0.1", "1")
    client = api.connect(broken.url)
    began = time.monotonic()
    with pytest.raises(pawlock.BackendReadOnly, match="replica"):
        client.lock().acquire(5)
    assert time.monotonic() - began < pace() * 2


def test_row_56_a_server_slower_than_the_ttl(api: Api) -> None:
    """A grant whose validity is over when it arrives is not handed out."""
    with start("valkey") as server:
        teach(server)
        client = api.connect(server.url)
        client.inspect("warm")
        sleeping = in_thread(lambda: server.command("DEBUG", "SLEEP", "0.7"))
        time.sleep(0.1)
        lease = client.lock(ttl=0.4, ticket_ttl=0.4).acquire(5)
        assert lease.remaining() > 0
        lease.check()
        sleeping.result(5)
        lease.release()
        until(lambda: remains(server) == [], what="a clean server")


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_row_57_clients_of_all_settings(*, decode: bool, protocol: int, server: Server, api: Api) -> None:
    with redis.Redis(port=server.port, decode_responses=decode, protocol=protocol) as theirs:
        lease = api.connect(theirs).lock().acquire(5)
        assert value(server) == lease.token
        lease.extend(40)
        lease.release()
        assert remains(server) == []


def test_row_83_another_wire_version_says_so(near: Client, broken: Server) -> None:
    near.lock().acquire(5).release()
    broken.command("HSET", helper("n", "fence"), "v", "2")
    with pytest.raises(pawlock.ScriptError, match="wire version 2"):
        near.lock().acquire(5)
    assert value(broken) is None
