"""The lock libraries that take part, each behind the same two-function handle."""

from __future__ import annotations

from benchmarks.peers import floor, foreign, others, pawlocks, redis_py
from benchmarks.peers.base import Handle, Peer, Session

PEERS: dict[str, Peer] = {
    peer.key: peer for peer in (*pawlocks.PEERS, *redis_py.PEERS, *others.PEERS, *foreign.PEERS, *floor.PEERS)
}

__all__ = ["PEERS", "Handle", "Peer", "Session"]
