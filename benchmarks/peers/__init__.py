"""The lock libraries that take part, each behind the same two-function handle."""

from __future__ import annotations

from benchmarks.peers import (
    floor,
    pawl_lock,
    pawl_permits,
    pawl_redlock,
    redis_lock_peer,
    redis_py,
    redlocks,
)
from benchmarks.peers.base import AsyncSession, Handle, Peer, Session

PEERS: dict[str, Peer] = {
    peer.key: peer
    for peer in (
        pawl_lock.PEER,
        pawl_lock.AGAIN,
        pawl_permits.SEMAPHORE,
        pawl_permits.READ,
        pawl_permits.WRITE,
        pawl_redlock.PEER,
        redlocks.NODE,
        redlocks.POTTERY,
        redlocks.AIOREDLOCK,
        redis_py.PEER,
        redis_lock_peer.PEER,
        floor.EVALSHA,
        floor.SET,
        floor.PAWL_SCRIPTS,
    )
}

__all__ = ["PEERS", "AsyncSession", "Handle", "Peer", "Session"]
