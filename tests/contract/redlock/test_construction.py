"""What can never be a quorum is refused before anything is sent; what is a poor one is warned of."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

import pawlock
from tests.contract.redlock.apis import APIS, connect, done, play
from tests.contract.redlock.conftest import FRESH, Cluster
from tests.support.servers import Server

THREE = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]

BAD: list[tuple[Any, str]] = [
    ([], "empty"),
    ((), "empty"),
    ("redlock://", "has no host"),
    ("redlock:///0", "has no host"),
    ([THREE[0], THREE[0], THREE[1]], "twice"),
    ("redlock://127.0.0.1:1,127.0.0.1:1,127.0.0.1:2", "twice"),
    ([THREE[0], "rediss://127.0.0.1:4", THREE[1]], "some do not"),
    ([THREE[0], "redis+sentinel://s/m", THREE[1]], "node 2"),
    ([THREE[0], "redis+cluster://h", THREE[1]], "node 2"),
    ([THREE[0], "redlock://a,b,c", THREE[1]], "node 2"),
    ([THREE[0], "embedded://", THREE[1]], "node 2"),
    ([THREE[0], "http://h", THREE[1]], "node 2"),
    ([THREE[0], None, THREE[1]], "node 2"),
    ([THREE[0], 7, THREE[1]], "node 2"),
    ([THREE[0], THREE, THREE[1]], "node 2"),
    ([THREE[0], "redis://h:99999", THREE[1]], "port"),
    ("redlock://a:1,b:2,c:3?nonsense=1", "nonsense"),
]


def refused(error: type[Exception], make: Callable[[], object]) -> str:
    """The text of the error that it must raise; "" if it raised none."""
    try:
        make()
    except error as found:
        return str(found)
    return ""


def test_lists_that_are_no_quorum() -> None:
    for api, (target, word) in product(APIS, BAD):
        assert re.search(word, refused(pawlock.ConfigurationError, partial(connect, api, target))), (
            api,
            target,
        )


def test_a_poor_quorum_is_warned_of_with_the_reason() -> None:
    poor = ((1, "not a quorum"), (2, "both are needed"), (4, "split evenly"))
    for api, (count, word) in product(APIS, poor):
        urls = [f"redis://127.0.0.1:{port}" for port in range(1, count + 1)]
        with pytest.warns(RuntimeWarning, match=word) as told:
            connect(api, urls)
        assert told[0].filename.endswith("apis.py"), "it points at the caller"


def test_options_of_the_masters() -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"node_timeout": 0}, "node_timeout"),
        ({"node_timeout": float("nan")}, "node_timeout"),
        ({"drift_factor": -0.1}, "drift_factor"),
        ({"drift_factor": 1}, "drift_factor"),
        ({"drift_floor": -1}, "drift_floor"),
        ({"max_ttl": 0}, "max_ttl"),
        ({"fresh": 1}, "fresh"),
    ]
    for options, word in bad:
        assert word in refused(pawlock.ConfigurationError, partial(pawlock.RedlockOptions, **options)), (
            options
        )


@pytest.mark.parametrize("api", APIS)
def test_options_and_ttls_that_do_not_fit(api: str) -> None:
    with pytest.raises(pawlock.ConfigurationError, match="RedlockOptions"):
        connect(api, THREE, redlock={"fresh": True})
    with pytest.raises(pawlock.ConfigurationError, match="a single server"):
        connect(api, THREE[0], redlock=FRESH)
    with pytest.raises(pawlock.ConfigurationError, match="max_ttl"):
        connect(api, THREE, ttl=61)
    client = connect(api, THREE)
    with pytest.raises(pawlock.ConfigurationError, match="max_ttl"):
        client.lock("x", ttl=100)
    with pytest.raises(pawlock.ConfigurationError, match="max_ttl"):
        client.lock("x").acquire(ttl=100)


@pytest.mark.parametrize("api", APIS)
def test_fences_that_several_masters_would_forget_too_soon(api: str) -> None:
    with pytest.raises(pawlock.ConfigurationError, match="fence_ttl"):
        connect(api, THREE, fence_ttl=59)
    with pytest.raises(pawlock.ConfigurationError, match="fence_ttl"):
        connect(api, THREE, fence_ttl=0)
    long = pawlock.RedlockOptions(max_ttl=10 * 86400)
    connect(api, THREE, redlock=long).lock("x")  # an hour is enough


REFUSED: list[tuple[str, Callable[[Any], Any]]] = [
    ("fair_lock", lambda client: client.fair_lock("x")),
    ("semaphore", lambda client: client.semaphore("x", permits=2)),
    ("rwlock", lambda client: client.rwlock("x")),
    ("latch", lambda client: client.latch("x", 2)),
    ("barrier", lambda client: client.barrier("x", 2)),
    ("election", lambda client: client.election("x")),
]


def test_what_a_majority_cannot_keep_is_refused() -> None:
    for api, (kind, make) in product(APIS, REFUSED):
        text = refused(pawlock.NotSupported, partial(make, connect(api, THREE)))
        assert "independent masters" in text, (api, kind)


@pytest.mark.parametrize("api", APIS)
def test_one_server_under_two_addresses_is_found_out(
    own_three: Cluster, api: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = own_three.servers[0].port
    urls = [own_three.urls[0], f"redis://localhost:{port}/0", own_three.urls[1]]

    async def scenario() -> None:
        client = connect(api, urls, redlock=FRESH)
        lease = await done(client.lock("x").acquire())
        # Two are one, so these two, and the third, all had to agree.
        assert sum(vote.granted for vote in lease.quorum.nodes) == 2
        assert "one server" in " ".join(vote.answer for vote in lease.quorum.nodes)
        await done(lease.release())
        # Told aloud, and once: the others go on without it.
        (told,) = [record for record in caplog.records if record.name == "pawlock.redlock"]
        assert re.fullmatch(r"(\S+) has no vote: \1 and \S+ are one server, .*", told.message)
        own_three.servers[1].kill()
        with pytest.raises(pawlock.QuorumNotReached, match="one server"):
            await done(client.lock("x").acquire(timeout=0.3))
        await done(client.close())

    play(api, scenario)


@pytest.mark.parametrize("api", APIS)
def test_a_replica_is_no_node(own_three: Cluster, api: str, caplog: pytest.LogCaptureFixture) -> None:
    with Server(
        "valkey", unix=False, args=["--replicaof", "127.0.0.1", str(own_three.servers[0].port)]
    ) as replica:
        urls = [own_three.urls[0], replica.url, own_three.urls[1]]

        async def scenario() -> None:
            client = connect(api, urls, redlock=FRESH)
            lease = await done(client.lock("x").acquire())
            assert "replica" in " ".join(vote.answer for vote in lease.quorum.nodes)
            text = f"{replica.url} has no vote: {replica.url} is a replica: use the address of the master"
            assert text in caplog.messages
            await done(lease.release())
            await done(client.close())

        play(api, scenario)


def test_a_wrong_password_on_every_node_is_told_as_such(own_three: Cluster) -> None:
    for server in own_three.servers:
        server.command("CONFIG", "SET", "requirepass", "right")
    urls = [url.replace("redis://", "redis://:wrong@") for url in own_three.urls]
    with pawlock.connect(urls, redlock=FRESH) as client, pytest.raises(pawlock.BackendDenied) as caught:
        client.lock("x").acquire(timeout=1)
    assert "wrong" not in str(caught.value) + repr(caught.value.__notes__)
