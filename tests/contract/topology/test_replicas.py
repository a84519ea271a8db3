"""``replicas=k``: a grant counts once k replicas have it, and is undone where they do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import pawlock
from tests.faults.rig import Api, in_thread, key, refusal, remains, script, until
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.resp import Wire
from tests.support.servers import Server

pytestmark = pytest.mark.fault


class Pair:
    """A master and its replicas, without Sentinels."""

    def __init__(self, *replicas: Server, master: Server) -> None:
        self.master = master
        self.replicas = replicas
        for replica in replicas:
            replica.command("REPLICAOF", "127.0.0.1", str(master.port))
        self.wait()

    def online(self) -> int:
        role = self.master.command("ROLE")
        assert isinstance(role, list)
        assert isinstance(role[2], list)
        return len(role[2])

    def in_step(self) -> bool:
        """Whether every replica has what is written now; WAIT covers its own connection's writes alone."""
        with Wire(self.master.address, timeout=10.0) as wire:
            wire.command("SET", "step", "1", "PX", "1")
            return wire.command("WAIT", len(self.replicas), 1000) == len(self.replicas)

    def wait(self) -> None:
        until(lambda: self.online() == len(self.replicas) and self.in_step(), what="the replicas are in step")


def left(pair: Pair) -> list[str]:
    """What is left of locks; records of sessions end by themselves."""
    return [name for name in remains(pair.master) if ":session" not in name]


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    args = ["--repl-diskless-sync-delay", "0"]
    with (
        Server("valkey", unix=False, args=args) as master,
        Server("valkey", unix=False, args=args) as one,
        Server("valkey", unix=False, args=args) as two,
    ):
        yield Pair(one, two, master=master)


@pytest.fixture
def pair(servers: Pair) -> Pair:
    """A master with two replicas, without any key."""
    servers.master.command("FLUSHALL")
    servers.wait()
    return servers


def test_a_grant_is_on_the_replicas_when_it_comes(pair: Pair, api: Api) -> None:
    client = api.connect(pair.master.url)
    for _ in range(20):
        lease = client.lock(replicas=2).acquire()
        for replica in pair.replicas:
            assert replica.command("GET", key("n")) == lease.token.encode()
        lease.release()


def test_a_replica_that_comes_while_it_is_waited_for_does_not_count(api: Api) -> None:
    """A master that never had one numbers no writes: it says of a newcomer that it has them all."""
    args = ["--repl-diskless-sync-delay", "0"]
    with Server("valkey", unix=False, args=args) as master, Server("valkey", unix=False, args=args) as one:
        client = api.connect(master.url)
        lease = client.lock("first").acquire()
        lease.release()
        coming = threading.Timer(0.02, lambda: one.command("REPLICAOF", "127.0.0.1", str(master.port)))
        coming.start()
        with pytest.raises(pawlock.NotReplicated, match="0 of 1 replicas acknowledged"):
            client.lock(replicas=1).acquire()
        coming.join()


def test_too_few_replicas_are_told(pair: Pair, api: Api) -> None:
    client = api.connect(pair.master.url)
    with pytest.raises(pawlock.NotReplicated, match="2 of 3 replicas acknowledged") as caught:
        client.lock(replicas=3, ttl=30.0).acquire()
    assert (caught.value.acknowledged, caught.value.wanted, caught.value.name) == (2, 3, "n")
    until(lambda: left(pair) == [], what="nothing is left")


def test_a_lagging_replica_refuses_the_grant(pair: Pair, api: Api) -> None:
    client, other = api.connect(pair.master.url), api.connect(pair.master.url)
    client.lock("warm", replicas=2).acquire().release()
    with pair.replicas[0].paused():
        with pytest.raises(
            pawlock.NotReplicated, match="1 of 2 replicas acknowledged; the grant was released"
        ) as caught:
            client.lock(replicas=2, ttl=0.6).acquire()
        assert (caught.value.acknowledged, caught.value.wanted) == (1, 2)
        assert left(pair) == [], "undone before it is told"
        other.lock(replicas=1).acquire().release()
        other.lock().acquire().release()
    pair.wait()
    client.lock(replicas=2).acquire().release()


@pytest.mark.slow
def test_an_undo_that_is_lost_is_sent_again(pair: Pair, api: Api) -> None:
    """Two faults in a row: too few replicas, and then the undo of the grant does not arrive."""
    with Proxy(pair.master) as proxy:
        client = api.connect(proxy.url)
        client.lock("warm", replicas=2).acquire().release()
        with pair.replicas[0].paused():
            lost = proxy.drop_request(script("leave"))
            with pytest.raises(pawlock.NotReplicated):
                client.lock(replicas=2, ttl=30.0).acquire()
            proxy.wait_hit(lost)
            until(lambda: left(pair) == [], what="undone after all, long before its ttl is over")


def test_a_handed_off_grant_is_on_the_replicas_too(pair: Pair, api: Api) -> None:
    """The hand-off is written by the one who releases; WAIT on the waiter's connection alone would cover nothing."""
    client, other = api.connect(pair.master.url), api.connect(pair.master.url)
    other.lock("warm", replicas=2).acquire().release()
    first = client.lock().acquire()
    waiting = other.lock(replicas=2, ttl=2.0).start()
    until(lambda: client.inspect().queue_length == 1, what="it queues")
    with pair.replicas[0].paused():
        first.release()
        with pytest.raises(pawlock.NotReplicated):
            waiting.result(10.0)
        assert left(pair) == []
    second = client.lock().acquire()
    waiting = other.lock(replicas=2, ttl=2.0).start()
    until(lambda: client.inspect().queue_length == 1, what="it queues")
    second.release()
    lease = waiting.result(10.0)
    for replica in pair.replicas:
        assert replica.command("GET", key("n")) == lease.token.encode()
    lease.release()


def test_a_resend_is_not_taken_for_an_acknowledgement(pair: Pair, api: Api) -> None:
    """The token holds already, by a request whose answer was lost: asking again writes nothing by itself."""
    client = api.connect(pair.master.url)
    client.lock("warm", replicas=2).acquire().release()
    engine = api.run(lambda: api.engine(client.raw))
    with pair.replicas[0].paused():
        token = "stuck@test:1/x"
        pair.master.command("SET", key("n"), token, "PX", 60_000)
        pair.master.command("HSET", "{pawlock:n}:fence", "last", 5, "cur", 5, "v", 1)
        new_token, engine.runtime.new_token = engine.runtime.new_token, lambda: token
        try:
            with pytest.raises(pawlock.NotReplicated):
                client.lock(replicas=2, ttl=1.0, handover=0).acquire()
        finally:
            engine.runtime.new_token = new_token
        assert pair.master.command("GET", key("n")) is None, "undone by its token"


def test_a_renewal_counts_only_where_the_replicas_have_it(pair: Pair, api: Api) -> None:
    """Else a promoted replica would free the name before its holder is told."""
    client = api.connect(pair.master.url)
    lease = client.lock(replicas=2, ttl=2.0).acquire()
    plain = client.lock("plain", ttl=2.0).acquire()
    until(lambda: client.counter("renewed") >= 2, what="both are renewed")
    with pair.replicas[0].paused():
        until(lambda: lease.state == "suspect", what="a renewal that did not arrive")
        assert plain.state == "held"
        until(lambda: lease.state == "lost", what="its end")
        assert plain.state == "held"
        assert lease.reason == "unreachable"
    plain.release()


@pytest.mark.slow
def test_an_extension_counts_only_where_the_replicas_have_it(pair: Pair, api: Api) -> None:
    client = api.connect(pair.master.url)
    lease = client.lock(replicas=2, ttl=6.0).acquire()
    lease.extend(18.0)
    assert lease.remaining() > 12.0
    with (
        pair.replicas[0].paused(),
        pytest.raises(pawlock.PawlockError, match=r"reached 1 of 2 replicas|lost"),
    ):
        lease.extend(60.0)
    pair.wait()


@pytest.mark.slow
def test_others_are_not_kept_waiting(pair: Pair, api: Api) -> None:
    """WAIT blocks a connection: not the one that the others share."""
    client = api.connect(pair.master.url)
    client.lock("warm", replicas=2).acquire().release()
    client.lock("other").acquire().release()
    with pair.replicas[0].paused():
        blocked = in_thread(lambda: client.lock(replicas=2, ttl=3.0).acquire())
        until(lambda: pair.master.command("EXISTS", key("n")) == 1, what="it waits for the replica")
        began = time.monotonic()
        client.lock("other").acquire().release()
        assert time.monotonic() - began < pace() * 1.0, "not behind the WAIT, which may take a ttl of 3 s"
        with pytest.raises(pawlock.NotReplicated):
            blocked.result(10.0)


def test_a_user_who_may_not_wait_is_told(pair: Pair, api: Api) -> None:
    pair.master.command("ACL", "SETUSER", "meek", "on", ">pw", "~*", "&*", "+@all", "-wait")
    client = api.connect(pair.master.url, username="meek", password="pw")
    with pytest.raises(pawlock.BackendDenied, match="wait"):
        client.lock(replicas=1).acquire()
    until(lambda: left(pair) == [], what="nothing is left")
    assert not refusal(pair.master, "ACL", "DELUSER", "meek")


def test_a_ticket_is_adopted_with_replicas(pair: Pair, api: Api) -> None:
    client = api.connect(pair.master.url)
    raw = client.lock(replicas=2).acquire().raw
    ticket = api.run(raw.detach)
    lease = api.run(lambda: client.raw.adopt(ticket, replicas=2))
    for replica in pair.replicas:
        assert replica.command("GET", key("n")) == lease.token.encode()
    api.run(lease.release)


@pytest.mark.slow
def test_what_a_failover_would_lose_is_refused(api: Api) -> None:
    """Replication is frozen, the lock is refused; so the failover loses nothing that anybody relies on."""
    with SentinelGroup() as group:
        client = api.connect(group.url)
        kept = client.lock("kept", replicas=1, ttl=30.0).acquire()
        group.freeze_replication()
        with pytest.raises(pawlock.NotReplicated) as caught:
            client.lock(replicas=1, ttl=30.0).acquire()
        assert caught.value.acknowledged == 0
        old = group.master
        old.kill()
        master = group.wait_for_failover(old)
        assert master.command("GET", key("kept")) == kept.token.encode(), "what was granted is there"
        assert master.command("GET", key("n")) is None
        until(lambda: kept.state == "suspect", what="without a replica no renewal counts any more")


@pytest.mark.slow
def test_in_a_cluster(api: Api) -> None:
    with ClusterGroup(replicas=1) as cluster:
        client = api.connect(cluster.url)
        leases = [client.lock(f"n{i}", replicas=1, ttl=1.5).acquire() for i in range(6)]
        until(lambda: client.counter("renewed") >= 12, what="renewals")
        assert {lease.state for lease in leases} == {"held"}
        with pytest.raises(pawlock.NotReplicated, match="1 of 2 replicas acknowledged"):
            client.lock("n9", replicas=2).acquire()
        for lease in leases:
            lease.release()
