"""Readers and writers of several independent masters."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

import pawlock
from pawlock.primitives.permits import EXCLUSIVE, SHARED
from pawlock.primitives.redlock.rwlock import QuorumRwlock
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import APIS, connect, done, nap, play
from tests.contract.redlock.conftest import PATIENT, Cluster
from tests.support.pace import pace
from tests.support.servers import Server

each_api = pytest.mark.parametrize("api", APIS)


@each_api
def test_readers_share_and_a_writer_is_alone(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        one, two = (connect(api, five.urls, redlock=PATIENT) for _ in range(2))
        first = await done(one.rwlock("d").read.acquire())
        second = await done(two.rwlock("d").read.acquire(timeout=2))
        assert first.quorum.needed == 3
        assert first.fence_strength == "quorum"
        assert await done(two.rwlock("d").write.try_acquire()) is None
        seen = await done(one.rwlock("d").inspect())
        assert {holder.mode for holder in seen.holders} == {"read"}
        await done(first.release())
        assert await done(one.rwlock("d").write.try_acquire()) is None
        await done(second.release())
        writer = await done(one.rwlock("d").write.acquire(timeout=2))
        assert writer.fence > max(first.fence, second.fence)
        assert await done(two.rwlock("d").read.try_acquire()) is None
        assert await done(two.rwlock("d").write.try_acquire()) is None
        assert (await done(two.rwlock("d").inspect())).holders[0].mode == "write"
        await done(writer.release())
        await done((await done(two.rwlock("d").read.acquire(timeout=2))).release())
        await done(one.close())
        await done(two.close())

    play(api, scenario)
    eventually(lambda: not five.keys(), f"nothing is left but fences: {five.keys()}")


@each_api
def test_a_writer_that_becomes_a_reader_lets_readers_in_and_no_writer(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        one, two = (connect(api, five.urls, redlock=PATIENT) for _ in range(2))
        lease = await done(one.rwlock("d").write.acquire())
        await done(lease.downgrade())
        other = await done(two.rwlock("d").read.acquire(timeout=2))
        await done(lease.extend(20))
        await done(other.release())
        third = connect(api, five.urls, redlock=PATIENT)
        assert await done(third.rwlock("d").write.try_acquire()) is None
        await done(lease.release())
        await done((await done(third.rwlock("d").write.acquire(timeout=2))).release())
        for client in (one, two, third):
            await done(client.close())

    play(api, scenario)


@each_api
def test_a_waiting_writer_comes_before_new_readers(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        one, two = (connect(api, five.urls, redlock=PATIENT) for _ in range(2))
        reader = await done(one.rwlock("w").read.acquire())
        with pytest.raises(pawlock.AcquireTimeout):
            await done(two.rwlock("w").write.acquire(timeout=0.1))
        # The writer gave up, and its intent still keeps new readers out, for a while that is known.
        assert await done(two.rwlock("w").read.try_acquire()) is None
        began = time.monotonic()
        late = await done(two.rwlock("w").read.acquire(timeout=3))
        assert time.monotonic() - began < pace() * 2
        await done(late.release())
        # One that only tried leaves none.
        assert await done(two.rwlock("w").write.try_acquire()) is None
        await done((await done(two.rwlock("w").read.acquire(timeout=0.3))).release())
        await done(reader.release())
        await done(one.close())
        await done(two.close())

    play(api, scenario)


def test_a_writer_is_served_while_readers_come_and_go(five: Cluster) -> None:
    over = threading.Event()
    with five.client(redlock=PATIENT) as client:

        def read() -> None:
            while not over.is_set():
                with client.rwlock("busy").read.acquire(timeout=20):
                    time.sleep(0.02)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            time.sleep(0.2)
            began = time.monotonic()
            for _ in range(3):
                with client.rwlock("busy").write.acquire(timeout=20):
                    pass
            assert time.monotonic() - began < pace() * 10
        finally:
            over.set()
            for reader in readers:
                reader.join()


@each_api
def test_a_dead_reader_frees_only_itself_after_its_ttl(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        dying = connect(api, five.urls, redlock=PATIENT, ttl=0.4, renew=False)
        living = connect(api, five.urls, redlock=PATIENT, ttl=2)
        gone = await done(dying.rwlock("r").read.acquire())
        stays = await done(living.rwlock("r").read.acquire())
        await nap(api, 0.5)
        assert gone.state == "lost"
        stays.check()
        writer = connect(api, five.urls, redlock=PATIENT)
        assert await done(writer.rwlock("r").write.try_acquire()) is None
        await done(stays.release())
        await done((await done(writer.rwlock("r").write.acquire(timeout=2))).release())
        for client in (dying, living, writer):
            await done(client.close())

    play(api, scenario)


@each_api
def test_a_minority_may_fail_and_a_majority_may_not(own_three: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, own_three.urls, redlock=PATIENT, ttl=2)
        reader = await done(client.rwlock("m").read.acquire())
        own_three.servers[0].kill()
        await done(reader.extend(2))
        await done(reader.release())
        writer = await done(client.rwlock("m").write.acquire(timeout=3))
        own_three.servers[1].kill()
        with pytest.raises(pawlock.QuorumNotReached):
            await done(client.rwlock("other").read.acquire(timeout=0.3))
        writer.check()
        await done(client.close(timeout=0.1))

    play(api, scenario)


@each_api
def test_what_cannot_be_is_refused(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, five.urls, redlock=PATIENT)
        with pytest.raises(pawlock.NotSupported, match="upgradable"):
            client.rwlock("u", upgradable=True)
        with pytest.raises(pawlock.NotSupported, match="replicas"):
            client.rwlock("u", replicas=1)
        with pytest.raises(pawlock.ConfigurationError, match="max_ttl"):
            client.rwlock("u", ttl=100)
        reader = await done(client.rwlock("u").read.acquire())
        with pytest.raises(pawlock.DeadlockDetected):
            await done(client.rwlock("u").write.acquire(timeout=2))
        await done(reader.release())
        writer = await done(client.rwlock("u").write.acquire(timeout=2))
        inner = await done(client.rwlock("u").read.acquire())
        assert inner is writer
        await done(inner.release())
        await done(writer.release())
        await done(client.close())

    play(api, scenario)


class Nodes:
    """Three real nodes, spoken to one by one, so that the steps of candidates may be mixed at will."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers
        self.modes = {mode: QuorumRwlock("rwlock", "x", "pawlock:x", mode) for mode in (SHARED, EXCLUSIVE)}

    def _run(self, node: int, call: Any) -> list[Any]:
        words = [*call.words(), b"1000000001"]
        return self.servers[node].command("EVAL", call.script.source, str(call.script.numkeys), *words)  # type: ignore[return-value]

    def vote(
        self, node: int, token: str, mode: str, *, wait: bool = False, again: bool = False
    ) -> tuple[bool, int]:
        """Whether the node is for it, and the fence it gave."""
        call = self.modes[mode].grant(token, 60_000, 1, 0, clock=True, wait=wait, again=again)
        reply = self._run(node, call)
        return reply[0] == b"H", reply[2]

    def ratify(self, node: int, token: str, mode: str, fence: int) -> bool:
        """Whether the node still has it, and knows the fence now."""
        return bool(self._run(node, self.modes[mode].ratify(token, fence, 1))[0] == b"H")

    def leave(self, node: int, token: str, mode: str) -> None:
        """Take a vote back."""
        self._run(node, self.modes[mode].leave(token, 0, 0))


def test_a_reader_wins_its_vote_back_though_a_writer_waits(own_three: Cluster) -> None:
    """A writer that waits keeps new readers out. A lease that a master forgot is none, and would be lost by that."""
    nodes = Nodes(own_three.servers)
    first, writer, reader = (f"{number:022}@h:1/t" for number in range(3))
    assert nodes.vote(0, first, SHARED)[0]
    assert not nodes.vote(0, writer, EXCLUSIVE, wait=True)[0]
    nodes.leave(0, first, SHARED)
    assert not nodes.vote(0, reader, SHARED)[0]
    assert nodes.vote(0, reader, SHARED, again=True)[0]
    # Nor does that let it in beside a writer.
    nodes.leave(0, reader, SHARED)
    assert nodes.vote(0, writer, EXCLUSIVE)[0]
    assert not nodes.vote(0, reader, SHARED, again=True)[0]


@pytest.mark.parametrize("seed", range(3))
def test_no_order_of_votes_lets_a_writer_in_beside_anybody(own_three: Cluster, seed: int) -> None:
    """Steps of candidates on the nodes come in any order: a writer's majority never stands beside another."""
    dice, nodes = random.Random(seed), Nodes(own_three.servers)
    votes: dict[str, tuple[str, set[int], int]] = {}
    tops: list[int] = []
    told: dict[str, int] = {}
    for step in range(400):
        if not votes or (len(votes) < 4 and dice.random() < 0.4):
            votes[f"{step:024}@h:1/t"] = dice.choice((SHARED, SHARED, EXCLUSIVE)), set(), 0
        token = dice.choice(list(votes))
        mode, given, fence = votes[token]
        node = dice.randrange(3)
        if dice.random() < 0.7:
            yes, minted = nodes.vote(node, token, mode)
            if yes:
                given.add(node)
                votes[token] = mode, given, max(fence, minted)
        else:
            # It gives up, or has done: node by node, but here nobody else is asked meanwhile.
            for other in given:
                nodes.leave(other, token, mode)
            del votes[token]
            told.pop(token, None)
        owners = [(t, m, f) for t, (m, g, f) in votes.items() if len(g) >= 2]
        writers = [owner for owner in owners if owner[1] == EXCLUSIVE]
        assert not writers or len(owners) == 1, owners
        for token, mode, fence in owners:
            if token not in told and sum(nodes.ratify(n, token, mode, fence) for n in votes[token][1]) >= 2:
                told[token] = fence
                if mode == EXCLUSIVE:
                    assert fence > max(tops, default=0), "a writer's fence is above all before"
                tops.append(fence)
    assert len(tops) > 20
