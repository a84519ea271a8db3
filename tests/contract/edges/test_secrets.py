"""What must not get out: a token in a text or log, a password in an error; and what must not travel: a lease."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import traceback
from collections.abc import Iterator

import pytest
import redis

import pawlock
from tests.contract.edges.helpers import eventually, started_threads
from tests.support.proxy import Proxy
from tests.support.servers import Server

PASSWORD = "hunter2/ü?#@secret"
CODED = "hunter2%2F%C3%BC%3F%23%40secret"


@pytest.fixture
def everything(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All that pawlock logs, also what nobody usually asks for."""
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("pawlock").setLevel(logging.DEBUG)
        yield caplog
        logging.getLogger("pawlock").setLevel(logging.NOTSET)


def told(records: list[logging.LogRecord]) -> str:
    return "\n".join(f"{record.getMessage()} {record.__dict__!r}" for record in records)


# Locks travel


def test_a_lock_is_pickled_by_the_url_of_its_client(client: pawlock.Client, valkey: Server) -> None:
    last = client
    locks = [client.lock("travels", ttl=7, handover=3), client.rlock("travels", ttl=7)]
    for lock in locks:
        there = pickle.loads(pickle.dumps(lock))
        assert (there.name, repr(there)) == (lock.name, repr(lock))
        with there as lease:
            assert lease.ttl == lock._plan.options.ttl
            assert client.lock(lock.name).try_acquire() is None
        assert pickle.loads(pickle.dumps(lock))._client is there._client, "one client for all of one origin"
        last = there._client
    last.close()


def test_a_revived_client_that_was_closed_is_made_anew(client: pawlock.Client) -> None:
    data = pickle.dumps(client.lock("again"))
    pickle.loads(data)._client.close()
    lock = pickle.loads(data)
    with lock:
        pass
    lock._client.close()


async def test_a_lock_of_tasks_is_pickled(aclient: pawlock.AsyncClient) -> None:
    there = pickle.loads(pickle.dumps(aclient.lock("travels")))
    async with there:
        assert await aclient.lock("travels").try_acquire() is None
    await there._client.close()


def test_a_lock_is_copied_as_itself(client: pawlock.Client) -> None:
    """It is an immutable description, also where it could not be pickled."""
    plain = redis.Redis()
    for lock in (client.lock("copied"), pawlock.connect(plain).lock("copied")):
        assert copy.copy(lock) is lock
        assert copy.deepcopy({"deep": [lock]})["deep"][0] is lock
    plain.close()


def test_a_lock_of_a_client_object_is_not_pickled() -> None:
    plain = redis.Redis(password=PASSWORD)
    with pytest.raises(TypeError, match="URL") as caught:
        pickle.dumps(pawlock.connect(plain).lock("stays"))
    assert isinstance(caught.value, pawlock.PawlockError)
    assert "hunter2" not in str(caught.value)
    plain.close()


# Leases do not


def test_a_lease_neither_travels_nor_doubles(client: pawlock.Client) -> None:
    with client.lock("stays") as lease:
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(pawlock.PawlockError, match="lease cannot be") as caught:
                attempt(lease)
            assert isinstance(caught.value, TypeError)
        lease.check()
    for door in (client, pawlock.connect_async("redis://127.0.0.1:1")):
        with pytest.raises(TypeError, match="client cannot be pickled"):
            pickle.dumps(door)


# Tokens


def test_no_text_shows_a_token(
    valkey: Server, everything: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every door, with every kind of trouble; then all texts are searched for the secret part of every token."""
    valkey.command("FLUSHALL")
    secrets: set[str] = set()
    texts: list[str] = []

    def note(lease: pawlock.Lease) -> pawlock.Lease:
        secrets.add(lease.token.split("@")[0])
        assert len(lease.token.split("@")[0]) == 24
        texts.extend([repr(lease), str(lease), repr(lease.lost), f"{lease.state}"])
        return lease

    def fails(work: object) -> None:
        assert callable(work)
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, its text counts
            texts.extend([str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)])
        else:
            pytest.fail("did not fail")

    with Proxy(valkey) as proxy:
        client, other = pawlock.connect(proxy.url), pawlock.connect(valkey.url)
        lease = note(client.lock("texts", ttl=1.0).acquire())
        fails(lambda: client.lock("texts").acquire(timeout=0.05))
        with client.lock("in a block"):
            fails(client.lock("in a block").acquire)
        fails(lambda: other.lock("texts").acquire(timeout=0.05))
        texts.append(repr(other.inspect("texts")))
        with started_threads(lambda: fails(lambda: other.lock("texts").acquire(timeout=0.3))):
            eventually(lambda: client.inspect("texts").queue_length == 1, "it queues")
            texts.append(repr(client.inspect("texts")))
        fails(lambda: pickle.dumps(lease))
        proxy.refuse()
        proxy.reset_all()
        fails(lambda: client.lock("down", unavailable_after=0.1).acquire())
        assert lease.lost.wait(10)
        note(lease)
        fails(lease.check)
        fails(lambda: lease.extend(5))
        fails(lease.release)
        fails(lease.release)
        proxy.clear()
        lease = note(client.lock("texts two", ttl=1.0).acquire())
        valkey.command("SET", "pawlock:texts two", "x@y", "PX", "5000")
        fails(lambda: lease.extend(10))
        with pytest.warns(ResourceWarning) as warned:
            note(client.lock("dropped").acquire())
        texts.extend(str(w.message) for w in warned)
        own = note(client.lock("owned").acquire())
        fails(lambda: other.lock("owned").acquire(timeout=0.05))
        ticket = note(client.lock("given").acquire()).detach()
        fails(lambda: client.adopt(ticket[:-8]))
        fails(lambda: pawlock.connect(valkey.url, namespace="else").adopt(ticket))
        texts.extend(
            map(
                repr,
                (
                    client,
                    client.lock("x"),
                    client.rlock("x"),
                    own._record.hold,
                    own._record.engine,
                    own._record,
                ),
            )
        )
        client.close(1.0)
        other.close(1.0)
    texts.append(told(everything.records))
    out = capsys.readouterr()
    joined = "\n".join([*texts, out.out, out.err])
    assert len(secrets) >= 5
    assert not [secret for secret in secrets if secret in joined]
    assert ticket not in joined


async def test_no_text_of_a_task_shows_a_token(
    valkey: Server,
    aclient: pawlock.AsyncClient,
    aother: pawlock.AsyncClient,
    everything: pytest.LogCaptureFixture,
) -> None:
    texts: list[str] = []
    lease = await aclient.lock("texts", ttl=0.6).acquire()
    secret = lease.token.split("@")[0]
    texts.append(repr(lease))
    with pytest.raises(pawlock.AcquireTimeout) as busy:
        await aother.lock("texts").acquire(timeout=0.05)
    valkey.command("DEL", "pawlock:texts")
    await lease.lost.wait(10)
    with pytest.raises(pawlock.NotHeld) as lost:
        await lease.release()
    for error in (busy.value, lost.value):
        texts.extend([*traceback.format_exception(error), repr(vars(error))])
    texts += [repr(task) for task in asyncio.all_tasks()]
    assert secret not in "\n".join([*texts, told(everything.records)])


# Passwords


URLS = [
    "redis://:{p}@127.0.0.1:1/0", "redis://user:{p}@127.0.0.1:1/0", "rediss://:{p}@127.0.0.1:1/0",
    "redis://:{p}@127.0.0.1:99999/0", "redis://:{p}@127.0.0.1:port/0", "redis://:{p}@127.0.0.1:1/database",
    "redis://:{p}@127.0.0.1:1/0?unknown=1", "redis://127.0.0.1:1/0?password={p}&nonsense=1",
    "redis://127.0.0.1:1/0?password={p}&db=x", "redis://127.0.0.1:1/0?password={p}", "http://:{p}@127.0.0.1:1/",
    "redis+sentinel://:{p}@h/m", "unix://:{p}@/nowhere/s", "unix://:{p}@", "redis://:{p}@[::1/0",
    "{p}@127.0.0.1:6379", ":{p}@127.0.0.1", "user:{p}@127.0.0.1:6379", "redis:/:{p}@h", "redis://:12/{p}@h:1",
    "redis://:℀{p}@h:1/0", "redis://:{p}#x@h:1/0", "embedded://:{p}@h",
]  # fmt: skip


def test_no_error_shows_a_password(everything: pytest.LogCaptureFixture) -> None:
    for given in [url.format(p=password) for url in URLS for password in ("hunter2", CODED)]:
        with pytest.raises((pawlock.PawlockError, OSError)) as caught:
            pawlock.connect(given, ttl=1).lock("x", unavailable_after=0.05).acquire(timeout=0.05)
        texts = [*traceback.format_exception(caught.value), repr(caught.value), repr(vars(caught.value))]
        # The line of this test that makes the URL stands in the traceback; it shows no value.
        assert "hunter2" not in "\n".join(texts), given
        assert "hunter2" not in told(everything.records), given


def test_no_text_of_a_refused_login_shows_the_password(everything: pytest.LogCaptureFixture) -> None:
    with Server("valkey", args=["--requirepass", "right"]) as server:
        address = server.url.removeprefix("redis://")
        client = pawlock.connect(f"redis://:{CODED}@{address}")
        with pytest.raises(pawlock.BackendDenied) as caught:
            client.lock("x").acquire()
        texts = [*traceback.format_exception(caught.value), repr(client), repr(client._origin[1])]
        assert "hunter2" not in "\n".join(texts) + told(everything.records)
        with pawlock.connect(f"redis://:right@{address}") as right, right.lock("x") as lease:
            assert "right" not in repr(lease) + repr(right)
            assert "right" not in repr(right._runtime._route.find())
