"""A body that blocks its event loop keeps its lease: a thread of the client renews it."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import pawlock
from tests.contract.edges.blocking import (
    block,
    blocked,
    gone_within,
    leave_out_those_of_before,
    relieved,
)
from tests.contract.edges.helpers import Script, eventually, holder_of, in_child, run_script, wait_for_renewal
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.servers import Server


@pytest.fixture(autouse=True)
def _own_threads() -> None:
    leave_out_those_of_before()


def test_a_blocked_body_keeps_its_lease(server: Server) -> None:
    blocked(server.url)
    assert gone_within(3)


def test_nobody_else_gets_what_a_blocked_body_holds(valkey: Server) -> None:
    """For more than two lives of the lease. Who waits for it gets it once it is given back, and no loss is told."""
    taken: list[float] = []

    def wait() -> None:
        with pawlock.connect(valkey.url) as rival, rival.lock("n", timeout=20):
            taken.append(time.monotonic())

    async def main() -> float:
        async with pawlock.connect_async(valkey.url) as client:
            async with client.lock("n", ttl=0.5, on_lost=lost.append) as lease:
                rival = threading.Thread(target=wait)
                rival.start()
                block(lease, 1.3)
                assert not taken
                held_until = time.monotonic()
            await asyncio.to_thread(rival.join)
            (engine,) = client._known_engines()
            assert engine.reports.counters["renewed"] >= 2
            return held_until

    lost: list[object] = []
    held_until = asyncio.run(main())
    assert len(taken) == 1
    assert taken[0] >= held_until
    assert not lost


def test_what_was_given_up_is_sent_while_the_loop_is_blocked(valkey: Server) -> None:
    """A lease is lost, or a wait is cancelled, and then the loop is blocked: others need not wait for it."""

    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client, pawlock.connect_async(valkey.url) as other:
            held = await other.lock("n").acquire()
            waiting = asyncio.create_task(client.lock("n").acquire())
            await asyncio.sleep(0.1)
            lease = await client.lock("m", max_hold=30).acquire()
            waiting.cancel()
            await asyncio.wait({waiting})
            lease._record.engine.lose(lease._record.hold, pawlock.LossReason.TAKEN)
            eventually(
                lambda: valkey.command("EXISTS", "{pawlock:n}:1:queue") == 0, "its ticket is given back"
            )
            eventually(lambda: holder_of(valkey, "m") is None, "the lost one is given back")
            await held.release()

    asyncio.run(main())


@pytest.mark.slow
def test_a_body_that_blocks_in_a_log_handler(own_server: Server) -> None:
    """The handler's lock is held all the while: what would be logged waits for it, and the renewal must not."""
    seen: list[str] = []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.name)
            if record.name == "app":
                time.sleep(0.5)
                # A renewal has no answer, which is a warning; those that follow have one.
                with own_server.paused():
                    time.sleep(1.0)
                time.sleep(1.5)

    async def main() -> None:
        async with pawlock.connect_async(own_server.url) as client, client.lock("n", ttl=2) as lease:
            logging.getLogger("app").warning("anything")
            assert lease.state == "held"
            assert holder_of(own_server, "n") == lease.token
            await asyncio.sleep(0)

    handler = Slow()
    logging.getLogger().addHandler(handler)
    try:
        asyncio.run(main())
        assert gone_within(3)
    finally:
        logging.getLogger().removeHandler(handler)
    assert seen[0] == "app"
    assert "pawlock.renewal" in seen


def test_max_hold_bounds_it(valkey: Server) -> None:
    async def main() -> float:
        async with pawlock.connect_async(valkey.url) as client:
            began = time.monotonic()
            with pytest.raises(pawlock.LeaseLost) as lost:
                async with client.lock("n", ttl=0.4, max_hold=0.9) as lease:
                    block(lease, 10)
            assert lost.value.reason == "max_hold"
            return time.monotonic() - began

    assert asyncio.run(main()) >= 0.8


def test_a_lease_that_is_taken_is_seen_in_the_body(valkey: Server) -> None:
    def body(lease: pawlock.AsyncLease) -> None:
        # It would be valid for as long as the loop is blocked, by the clock alone, if nobody asked.
        end = time.monotonic() + 5
        while not lease.lost and time.monotonic() < end:
            time.sleep(0.01)
            assert lease.remaining() < 0.6
        lease.check()

    async def main() -> None:
        with pawlock.connect(valkey.url) as operator:
            async with pawlock.connect_async(valkey.url) as client:
                lease = await client.lock("n", ttl=0.6).acquire()
                operator.force_release("n", reason="a test")
                with pytest.raises(pawlock.LeaseLost) as lost:
                    body(lease)
                assert lost.value.reason in ("taken", "expired")

    asyncio.run(main())


@pytest.mark.slow
def test_a_server_that_is_away_for_a_moment(own_server: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(own_server.url) as client, client.lock("n", ttl=1.5) as lease:
            block(lease, 0.6)
            with own_server.paused():
                block(lease, 0.5)
            block(lease, 2.0)
            assert lease.state == "held"

    asyncio.run(main())


@pytest.mark.slow
def test_a_server_that_stays_away_ends_it(own_server: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(own_server.url) as client:
            lease = await client.lock("n", ttl=0.6).acquire()
            own_server.kill()
            with pytest.raises(pawlock.LeaseLost):
                block(lease, 5)

    asyncio.run(main())
    assert gone_within(3)


def test_short_sections_open_no_second_connection(valkey: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client:
            for _ in range(20):
                async with client.lock("n", ttl=0.6):
                    await asyncio.sleep(0.03)
            assert len(bytes(valkey.command("CLIENT", "LIST")).splitlines()) == before + 1  # type: ignore[arg-type]

    before = len(bytes(valkey.command("CLIENT", "LIST")).splitlines())  # type: ignore[arg-type]
    asyncio.run(main())


def test_many_leases_have_one_thread(valkey: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client:
            started: set[int | None] = set()
            for number in range(200):
                async with client.lock(f"n{number}"):
                    started |= {thread.ident for thread in relieved()}
            assert len(started) == 1

    asyncio.run(main())
    assert gone_within(3)


@pytest.mark.slow
def test_a_close_elsewhere_gives_back_what_a_blocked_loop_holds(valkey: Server) -> None:
    """A client of two loops: one is blocked, and the client is closed in the other."""
    client = pawlock.connect_async(valkey.url)
    holds, lost = threading.Event(), threading.Event()

    async def held() -> None:
        lease = await client.lock("n", ttl=30).acquire()
        holds.set()
        with pytest.raises(pawlock.LeaseLost, match="closed"):
            block(lease, 10)
        eventually(lambda: holder_of(valkey, "n") is None, "it is given back")
        lost.set()
        # Time to close what this loop has open.
        await asyncio.sleep(0.3)

    async def end() -> None:
        await asyncio.to_thread(holds.wait)
        await asyncio.sleep(0.3)
        await client.close(timeout=0.2)

    other = threading.Thread(target=asyncio.run, args=(held(),))
    other.start()
    asyncio.run(end())
    other.join()
    assert lost.is_set()
    assert gone_within(3)


def test_a_loop_that_ended_is_not_renewed(valkey: Server) -> None:
    """In a process of its own: that loop leaves its connection and its lease behind."""
    text = """
    import asyncio, logging, sys, threading, time
    import pawlock

    logging.disable()
    kept = []

    async def main():
        client = pawlock.connect_async(sys.argv[1])
        kept.extend([client, await client.lock("n", ttl=0.5).acquire()])
        time.sleep(0.8)
        kept[1].check()

    asyncio.run(main())
    time.sleep(1.8)
    print([thread.name for thread in threading.enumerate()])
    with pawlock.connect(sys.argv[1]) as client:
        lease = client.lock("n").try_acquire()
        print(lease is not None)
        lease.release()
    """
    assert run_script(text, valkey.url).splitlines() == ["['MainThread']", "True"]


def test_a_program_ends_while_its_loop_is_blocked(valkey: Server) -> None:
    text = """
    import asyncio, logging, sys, time
    import pawlock
    logging.disable()

    async def main():
        lease = await pawlock.connect_async(sys.argv[1]).lock("n", ttl=1.5).acquire(timeout=5)
        time.sleep(2.5)
        lease.check()
        print("held")
        sys.exit()

    asyncio.run(main())
    """
    assert run_script(text, valkey.url) == "held"


def test_a_process_that_was_stopped_for_too_long_revives_nothing(valkey: Server) -> None:
    text = """
    import asyncio, logging, sys, time
    import pawlock

    logging.disable()

    async def main():
        lease = await pawlock.connect_async(sys.argv[1]).lock("n", ttl=1).acquire()
        print("held", flush=True)
        try:
            while True:
                time.sleep(0.001)
                lease.check()
        except pawlock.LeaseLost as error:
            print(error.reason, flush=True)
            sys.stdin.readline()

    asyncio.run(main())
    """
    with Script(text, valkey.url) as script, pawlock.connect(valkey.url) as client:
        assert script.line() == "held"
        wait_for_renewal(valkey, "n")
        script.process.send_signal(signal.SIGSTOP)
        eventually(lambda: holder_of(valkey, "n") is None, "it expires")
        lease = client.lock("n").acquire(timeout=5)
        script.process.send_signal(signal.SIGCONT)
        assert script.line() == "expired"
        time.sleep(0.5)
        lease.check()
        assert holder_of(valkey, "n") == lease.token


def test_a_loop_that_is_run_piece_by_piece_keeps_its_lease(valkey: Server) -> None:
    """Between two pieces, and while one of them blocks from its first line on."""
    loop = asyncio.new_event_loop()

    async def begin() -> tuple[pawlock.AsyncClient, pawlock.AsyncLease]:
        client = pawlock.connect_async(valkey.url)
        return client, await client.lock("n", ttl=0.6).acquire()

    async def go_on(lease: pawlock.AsyncLease) -> None:
        block(lease, 1.2)

    async def end(client: pawlock.AsyncClient, lease: pawlock.AsyncLease) -> None:
        await lease.release()
        await client.close()

    client, lease = loop.run_until_complete(begin())
    time.sleep(0.8)
    loop.run_until_complete(go_on(lease))
    loop.run_until_complete(end(client, lease))
    loop.close()
    assert gone_within(3)


def test_several_loops_in_several_threads(valkey: Server) -> None:
    client = pawlock.connect_async(valkey.url)
    kept: list[str] = []

    async def body(name: str) -> None:
        async with client.lock(name, ttl=0.6) as lease:
            block(lease, 1.2)
            kept.append(name)

    async def run(name: str) -> None:
        await body(name)
        await asyncio.to_thread(held.wait, 10)
        await asyncio.to_thread(closed.wait, 10)

    async def end() -> None:
        await asyncio.to_thread(held.wait, 10)
        await client.close()
        await asyncio.to_thread(closed.wait, 10)

    held, closed = threading.Barrier(4), threading.Barrier(4)
    threads = [threading.Thread(target=asyncio.run, args=(run(f"n{i}"),)) for i in range(3)]
    for thread in threads:
        thread.start()
    asyncio.run(end())
    for thread in threads:
        thread.join()
    assert sorted(kept) == ["n0", "n1", "n2"]
    assert gone_within(3)


def test_a_child_does_not_renew(valkey: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client, client.lock("n", ttl=0.5) as lease:
            block(lease, 0.6)
            assert in_child(lambda: str([bool(lease), len(relieved())])) == "[False, 0]"
            block(lease, 0.6)

    asyncio.run(main())


@pytest.fixture
def masters() -> Iterator[list[str]]:
    """The addresses of three independent servers."""
    servers = [Server("valkey", unix=False).start() for _ in range(3)]
    yield [one.url for one in servers]
    for one in servers:
        one.stop()


def test_independent_masters(masters: list[str]) -> None:
    blocked(masters, redlock=pawlock.RedlockOptions(fresh=True))


@pytest.fixture
def replicated() -> Iterator[tuple[Server, Server]]:
    """A server and its replica."""
    args = ["--repl-diskless-sync-delay", "0"]
    with Server("valkey", unix=False, args=args) as one, Server("valkey", unix=False, args=args) as two:
        two.command("REPLICAOF", "127.0.0.1", str(one.port))
        yield one, two


async def in_step(client: pawlock.AsyncClient) -> pawlock.AsyncLease:
    """A lease, as soon as the replica is in step."""
    for _ in range(200):
        try:
            return await client.lock("n", ttl=1).acquire(timeout=1)
        except pawlock.NotReplicated:
            await asyncio.sleep(0.05)
    raise AssertionError("the replica is not in step")


@pytest.mark.slow
def test_a_replica_must_have_the_renewal(replicated: tuple[Server, Server]) -> None:
    async def main() -> None:
        async with pawlock.connect_async(replicated[0].url, replicas=1) as client:
            lease = await in_step(client)
            block(lease, 1.8)
            # Without its replica, a renewal does not count.
            replicated[1].command("REPLICAOF", "NO", "ONE")
            with pytest.raises(pawlock.LeaseLost):
                block(lease, 10)

    asyncio.run(main())


@pytest.mark.slow
def test_a_unix_socket(valkey: Server) -> None:
    blocked(valkey.unix_url)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("group", [SentinelGroup, ClusterGroup])
def test_groups_of_servers(group: Callable[[], SentinelGroup | ClusterGroup]) -> None:
    with group() as servers:
        blocked(servers.url)


def renewals(server: Server) -> int:
    """How often the server's script of renewal ran."""
    text = bytes(server.command("INFO", "commandstats")).decode()  # type: ignore[arg-type]
    (line,) = (line for line in text.splitlines() if line.startswith("cmdstat_pexpireat"))
    return int(line.split("calls=")[1].split(",")[0])


@pytest.mark.slow
def test_ten_seconds_at_a_ttl_of_two(server: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(server.url) as client, client.lock("n", ttl=2) as lease:
            before = renewals(server) if b"cmdstat_pexpireat" in server.command("INFO", "commandstats") else 0  # type: ignore[operator]
            block(lease, 10)
            assert 10 <= renewals(server) - before <= 40

    asyncio.run(main())


@pytest.mark.slow
def test_five_seconds_at_most(server: Server) -> None:
    async def main() -> None:
        async with pawlock.connect_async(server.url) as client:
            began = time.monotonic()
            with pytest.raises(pawlock.LeaseLost, match="max_hold"):
                async with client.lock("n", ttl=2, max_hold=5) as lease:
                    block(lease, 10)
            assert 4.9 <= time.monotonic() - began < 9, "not until the block of 10 s has ended"

    asyncio.run(main())


class _HandlerError(BaseException):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("runs", [False, True])
def test_row_12_a_handler_that_raises_while_the_thread_is_started(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, *, runs: bool
) -> None:
    """Its exception comes through, and the next lease has a thread all the same, and only one."""
    start = threading.Thread.start
    raised: list[str] = []

    def interrupted(thread: threading.Thread) -> None:
        if thread.name != "pawlock-maintenance" or raised:
            return start(thread)
        raised.append(thread.name)
        if not runs:
            raise _HandlerError
        start(thread)
        try:
            raise _HandlerError
        finally:
            # What Python's own wait for the thread makes of it, where its lock is not taken again yet.
            raise RuntimeError("cannot release un-acquired lock")

    async def main() -> None:
        async with pawlock.connect_async(valkey.url) as client:
            with pytest.raises(_HandlerError):
                await client.lock("first").acquire()
            async with client.lock("n", ttl=0.3) as lease:
                block(lease, 0.9)
                assert holder_of(valkey, "n") == lease.token
                assert len(relieved()) == 1

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    asyncio.run(main())
    assert raised
    assert gone_within(3)
