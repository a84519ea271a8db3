"""TLS where several servers keep a name: independent masters, and a cluster; certificates are the test's own."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import pawlock
from tests.conformance import matrix
from tests.contract.edges.blocking import blocked
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import APIS, connect, done, play
from tests.faults.rig import Api, key
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.servers import Server, available

each_api = pytest.mark.parametrize("api", APIS)
FRESH = pawlock.RedlockOptions(fresh=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost."""
    if reason := available("redis") or matrix.why_not("TLS", "redis"):
        pytest.skip(reason)
    return matrix.certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def masters(folder: Path) -> Iterator[list[tuple[str, Server]]]:
    """Three masters that share nothing, each with a TLS port."""
    with ExitStack() as stack:
        yield [stack.enter_context(matrix.tls_server("redis", folder)) for _ in range(3)]


@each_api
def test_a_majority_of_masters_over_tls(masters: list[tuple[str, Server]], api: str) -> None:
    async def scenario() -> None:
        client = connect(api, [url for url, _ in masters], redlock=FRESH, ttl=3)
        for _ in range(20):
            lease = await done(client.lock("t").acquire())
            tokens = [server.command("GET", key("t")) for _, server in masters]
            assert tokens.count(lease.token.encode()) >= 2
            await done(lease.extend(3))
            await done(lease.release())
        eventually(lambda: all(server.command("GET", key("t")) is None for _, server in masters), "all free")
        await done(client.close())

    play(api, scenario)


@each_api
def test_a_master_whose_certificate_is_not_trusted_has_no_vote(
    masters: list[tuple[str, Server]], api: str, tmp_path: Path
) -> None:
    stranger = matrix.certificate(tmp_path)
    urls = [url.partition("?")[0] + f"?ssl_ca_certs={stranger / 'cert.pem'}" for url, _ in masters]

    async def scenario() -> None:
        client = connect(api, urls, redlock=FRESH)
        with pytest.raises(pawlock.BackendError, match="TLS"):
            await done(client.lock("t").acquire(timeout=1))
        await done(client.close())
        # One of three may fail, whatever the reason.
        client = connect(api, [urls[0], *(url for url, _ in masters[1:])], redlock=FRESH)
        lease = await done(client.lock("t").acquire(timeout=2))
        assert sum(vote.granted for vote in lease.quorum.nodes) == 2
        await done(lease.release())
        await done(client.close())

    play(api, scenario)


@each_api
def test_plain_and_tls_swapped_on_all_masters_is_told(
    masters: list[tuple[str, Server]], folder: Path, api: str
) -> None:
    ca = folder / "cert.pem"
    tls_to_plain = [f"rediss://localhost:{server.port}/0?ssl_ca_certs={ca}" for _, server in masters]
    plain_to_tls = [url.partition("?")[0].replace("rediss", "redis") for url, _ in masters]

    async def scenario() -> None:
        for urls, fix in ((tls_to_plain, "use redis://"), (plain_to_tls, "use rediss://")):
            client = connect(api, urls, redlock=FRESH)
            with pytest.raises((pawlock.BackendError, pawlock.QuorumNotReached)) as caught:
                await done(client.lock("t").acquire(timeout=2))
            said = "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
            assert fix in said
            await done(client.close())

    play(api, scenario)


def test_a_cluster_over_tls(folder: Path, api: Api) -> None:
    """Each node has one port, and it has_buffered_data TLS; the cluster tells that port."""
    with ClusterGroup("redis", tls=folder) as cluster:
        client = api.connect(f"{cluster.url}?ssl_ca_certs={folder / 'cert.pem'}")
        names = [f"n{number}" for number in range(8)]
        leases = [client.lock(name).acquire() for name in names]
        for name, lease in zip(names, leases, strict=True):
            owner = cluster.owner(cluster.slot_of(key(name)))
            assert owner.command("GET", key(name)) == lease.token.encode()
            lease.release()


@pytest.mark.slow
def test_a_service_of_sentinels_over_tls(folder: Path, api: Api) -> None:
    """Client, servers and Sentinels speak TLS to each other, also after a failover."""
    with SentinelGroup("redis", tls=folder) as group:
        client = api.connect(f"{group.url}?ssl_ca_certs={folder / 'cert.pem'}")
        lease = client.lock("s").acquire()
        old = group.master
        assert old.command("GET", key("s")) == lease.token.encode()
        lease.release()
        old.kill()
        lease = client.lock("s").acquire(timeout=30)
        assert group.wait_for_failover(old) is not old
        lease.release()


def test_a_blocked_event_loop_is_renewed_over_tls(masters: list[tuple[str, Server]]) -> None:
    blocked(masters[0][0], ttl=2, seconds=2.6)


def test_a_loop_that_ends_right_behind_its_client_leaves_no_connection_open(
    masters: list[tuple[str, Server]], recwarn: pytest.WarningsRecorder
) -> None:
    """asyncio closes a connection over TLS once the server has answered its end; this one does not answer."""
    url, server = masters[0]

    async def main() -> None:
        async with pawlock.connect_async(url) as client:
            await client.inspect("n")
            server.pause()

    try:
        asyncio.run(main())
    finally:
        server.resume()
    gc.collect()
    assert not [str(warning.message) for warning in recwarn if "unclosed" in str(warning.message)]
