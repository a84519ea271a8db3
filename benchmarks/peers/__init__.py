"""The lock libraries that take part, each behind the same two-function handle."""

from __future__ import annotations

from benchmarks.peers import (
    floor,
    floor_mux,
    foreign,
    others,
    pawlock_kinds,
    pawlock_lock,
    pawlock_redlock,
    redis_lock_peer,
    redis_py,
    server_benchmark,
)
from benchmarks.peers.base import AsyncSession, Handle, Peer, Session

PEERS: dict[str, Peer] = {
    peer.key: peer
    for peer in (
        pawlock_lock.PEER,
        pawlock_lock.AGAIN,
        *pawlock_kinds.KINDS,
        pawlock_redlock.PEER,
        foreign.NODE,
        foreign.REDSYNC,
        foreign.BSM,
        foreign.RUEIDIS,
        foreign.REDISSON,
        others.POTTERY,
        others.SHERLOCK,
        others.REDLOCK_NG,
        others.AIOREDLOCK,
        redis_py.PEER,
        redis_py.DROP_IN,
        redis_lock_peer.PEER,
        floor.EVALSHA,
        floor.SET,
        floor.PAWLOCK_SCRIPTS,
        floor_mux.PEER,
        server_benchmark.PEER,
    )
}

__all__ = ["PEERS", "AsyncSession", "Handle", "Peer", "Session"]
