"""Leases of one client are renewed together, and each is told what became of it all the same."""

from __future__ import annotations

from pawlock.model import LeaseState, LossReason
from tests.faults.rig import Client, until
from tests.support.scripts import published
from tests.support.servers import Server

TTL = 1.2
NAMES = ("a", "b", "c", "d", "e")


def expires_at(server: Server, name: str) -> int:
    """When a name expires, on the server's clock."""
    at = server.command("PEXPIRETIME", f"pawlock:{name}")
    assert isinstance(at, int)
    return at


def test_one_script_renews_several_names(pair: list[Client], valkey: Server) -> None:
    leases = [pair[0].lock(name, ttl=TTL).acquire(5) for name in NAMES]
    valkey.command("SCRIPT", "FLUSH")
    # The first time, in threads, each is asked for by itself: the maintenance has no connection yet.
    until(lambda: valkey.command("SCRIPT", "EXISTS", published("mutex/renew_all").sha) == [1])
    before = [expires_at(valkey, name) for name in NAMES]
    until(lambda: all(expires_at(valkey, name) > at + 100 for name, at in zip(NAMES, before, strict=True)))
    assert [lease.state for lease in leases] == [LeaseState.HELD] * len(NAMES)
    for lease in leases:
        lease.release()
    assert valkey.command("KEYS", "pawlock:*") == []


def test_of_several_only_the_one_that_was_taken_is_lost(pair: list[Client], valkey: Server) -> None:
    leases = [pair[0].lock(name, ttl=TTL).acquire(5) for name in NAMES]
    valkey.command("SET", "pawlock:c", "somebody-else", "PX", "60000")
    until(lambda: leases[2].state == LeaseState.LOST, what="its loss is told")
    assert leases[2].reason == LossReason.TAKEN
    begin = [expires_at(valkey, name) for name in NAMES]
    until(lambda: expires_at(valkey, "e") > begin[4] + 100, what="the others go on")
    assert [lease.state for lease in leases if lease is not leases[2]] == [LeaseState.HELD] * 4


def test_a_name_that_cannot_be_renewed_together_is_renewed_by_itself(
    pair: list[Client], valkey: Server
) -> None:
    """Its fence record is gone, or another one's is of a wrong type, which stops the script for all."""
    leases = [pair[0].lock(name, ttl=TTL).acquire(5) for name in NAMES]
    valkey.command("DEL", "{pawlock:b}:fence")
    valkey.command("DEL", "{pawlock:d}:fence")
    valkey.command("RPUSH", "{pawlock:d}:fence", "of somebody else")
    before = [expires_at(valkey, name) for name in NAMES]
    for index in (0, 1, 2, 4):
        until(lambda at=index: expires_at(valkey, NAMES[at]) > before[at] + 100, what="renewed")  # type: ignore[misc]
    until(lambda: leases[3].state != LeaseState.HELD, what="the one that is refused is in doubt")
    assert [lease.state for lease in leases if lease is not leases[3]] == [LeaseState.HELD] * 4
