"""redis-py's lock on pawlock: ``Redis.lock(name, lock_class=pawlock.compat.redis.Lock)``, or a client that always uses it.

The key is the name itself, byte for byte, so programs that moved and programs that did not exclude each other, and each
gets its turn. What is better: a lock without a timeout is renewed instead of left behind by a crash, waiters are woken by
the release instead of polling, a lost reply never turns a won lock into False, and ``lock.fence`` is a fencing token.
"""

from pawlock.compat.redis._async_lock import AsyncLock, AsyncRedis, AsyncRedisLocks
from pawlock.compat.redis._lock import Lock, Redis, RedisLocks
from pawlock.compat.redis._shared import LockError, LockNotOwnedError

__all__ = [
    "AsyncLock",
    "AsyncRedis",
    "AsyncRedisLocks",
    "Lock",
    "LockError",
    "LockNotOwnedError",
    "Redis",
    "RedisLocks",
]
