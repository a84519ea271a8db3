"""A lock table in memory: an engine of its own, that knows no script, no key and no word of a Redis server.

The names, their holders and their queues are plain objects. What is decided of them is in ``exclusive``, ``permits``
and ``ballots``; ``table`` is the one way in, and what a client needs beside it is shared with the other servers in this
process (``in_process``). May import core's protocol and those; no script, no transport, no Redis client.
"""

from __future__ import annotations

from pawlock.testing.lock_table.place import LockTable

__all__ = ["LockTable"]
