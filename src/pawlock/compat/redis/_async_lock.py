"""The drop-in for the lock of ``redis.asyncio``; see ``pawlock.compat.redis``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import redis.asyncio.lock
import redis.exceptions

import pawlock
from pawlock.compat.redis._shared import (
    CONNECT,
    Clients,
    LockError,
    LockNotOwnedError,
    Settings,
    as_bytes,
    longer,
    seconds,
    text_of_ours,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pawlock import AsyncClient, AsyncLease

__all__ = ["AsyncLock", "AsyncRedis", "AsyncRedisLocks"]

_log = logging.getLogger("pawlock.compat")
_clients: Clients[AsyncClient] = Clients(lambda client: pawlock.connect_async(client, **CONNECT))
_in_use: weakref.WeakSet[AsyncLock] = weakref.WeakSet()
"""Locks that are held or waited for."""


def _task() -> object:
    # Nobody may have a loop: a token is put into a lock before the loop that releases it runs.
    with contextlib.suppress(RuntimeError):
        return asyncio.current_task()
    return None


def _client_of(redis: Any) -> AsyncClient:
    """The client behind a pool, closed when the pool disconnects: a connection of asyncio cannot be closed later."""
    found = _clients.of(redis)
    keeper = _clients.keeper(redis)
    name = "disconnect" if hasattr(keeper, "disconnect") else "aclose"
    if name in keeper.__dict__:
        return found
    end: Callable[..., Awaitable[None]] = getattr(keeper, name)

    async def end_both(*args: Any, **options: Any) -> None:
        try:
            await end(*args, **options)
        finally:
            # redis-py releases no lock when it disconnects: holders and waiters go on.
            if not any(_clients.keeper(lock.redis) is keeper for lock in tuple(_in_use)):
                idle = _clients.forget(keeper)
                if idle is not None:
                    await idle.close()

    setattr(keeper, name, end_both)
    return found


class AsyncLock(Settings, redis.asyncio.lock.Lock):
    """The ``Lock`` of ``redis.asyncio`` with pawlock behind it, for ``Redis.lock(…, lock_class=AsyncLock)``.

    Args:
        redis: A client of redis-py: its address and login are taken over, nothing is sent through its pool.
        name: The name, which is the key, byte for byte: whatever redis-py takes but an empty one. Or a ``pawlock.Key``.
        timeout: TTL in seconds, at least 0.05, not renewed. None (default) or 0: 30 seconds, renewed while it is held.
        sleep: Not used: a waiter is woken.
        blocking: Whether ``acquire`` waits; default True.
        blocking_timeout: Seconds to wait at most; None (default): as long as it takes; 0: one attempt.
        thread_local: Whether a thread sees only what it acquired itself; default True.
        raise_on_release_error: Whether leaving a ``with`` block raises if the lock was lost; False logs it.
        ignored: What later versions of redis-py may pass.
    """

    def __init__(
        self,
        redis: Any,
        name: str | bytes | memoryview | pawlock.Key,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,  # noqa: FBT001, FBT002 - redis-py passes it by position
        blocking_timeout: float | None = None,
        thread_local: bool = True,  # noqa: FBT001, FBT002 - as above
        raise_on_release_error: bool = True,  # noqa: FBT001, FBT002 - as above
        **ignored: Any,  # noqa: ARG002 - see the docstring
    ) -> None:
        self._set(
            redis,
            name,
            (timeout, sleep, blocking_timeout),
            (blocking, thread_local, raise_on_release_error),
        )

    @staticmethod
    def _caller(thread_local: bool) -> Callable[[], object]:  # noqa: ARG004, FBT001 - for locks of threads
        return _task

    async def acquire(
        self,
        blocking: bool | None = None,  # noqa: FBT001 - redis-py's signature
        blocking_timeout: float | None = None,
        token: object = None,
    ) -> bool:
        """Acquire the lock: True once it is held, False if it is still held by another at the end of the wait.

        Args:
            blocking: Whether to wait; default: the lock's own.
            blocking_timeout: Seconds to wait at most; default: the lock's own.
            token: Not supported: pawlock's tokens are secrets that it makes itself.

        Raises:
            DeadlockDetected: It waited for tasks or processes that wait for what this task holds.
            ConfigurationError: An argument that can never work.
            BackendError: The server could not be reached. Never answered with False.
        """
        wait, limit = self._wait(blocking, blocking_timeout, token)
        lock = self._lock(_client_of(self.redis))
        _in_use.add(self)
        try:
            with translated():
                lease = await (lock.acquire(limit) if wait else lock.try_acquire())
            if lease is not None:
                self._took(lease)
                _in_use.add(self)  # again: a task that released it meanwhile took it out
        except pawlock.DeadlockDetected:
            raise
        except pawlock.NotAcquired:
            return False
        else:
            return lease is not None
        finally:
            if self.lease is None:
                _in_use.discard(self)

    async def do_acquire(self, token: object) -> bool:  # noqa: ARG002 - redis-py's signature
        """Not supported, as ``acquire(token=…)``.

        Args:
            token: Of the caller's own choice.

        Raises:
            ConfigurationError: Always.
        """
        raise self._no_token()

    async def release(self) -> None:
        """Release the lock; its next waiter is served at once.

        Raises:
            LockError: It was not acquired.
            LockNotOwnedError: It expired or was taken before.
            BackendUnavailable: The server did not answer; the TTL frees the lock at the latest.
        """
        token = self._token("release")
        try:
            await self.do_release(token)
        except LockNotOwnedError:
            self._let_go(token)
            raise
        # Only now: after a release that was cancelled, or that the server did not answer, the caller may release again.
        self._let_go(token)

    async def do_release(self, expected_token: str | bytes) -> None:
        """Release the lock that a token stands for, whoever acquired it.

        Args:
            expected_token: What ``local.token`` was where it was acquired, by pawlock or by redis-py.

        Raises:
            LockNotOwnedError: It is not held under that token.
            BackendUnavailable: The server did not answer; the TTL frees the lock at the latest.
        """
        token = as_bytes(expected_token)
        lease: AsyncLease | None = self._lease_of(token)
        try:
            with translated():
                if lease is not None:
                    await lease.release()
                elif ours := text_of_ours(token):
                    await _client_of(self.redis).release(self._what, ours)
                elif not await self.redis.eval(self.LUA_RELEASE_SCRIPT, 1, self._where, token):
                    raise self._not_owned("release")
        except (pawlock.NotHeld, pawlock.LeaseLost) as error:
            self._done_with(token)
            raise self._not_owned("release", error) from error
        self._done_with(token)

    def _done_with(self, token: bytes) -> None:
        # Another task may have got the lock through this object meanwhile.
        if as_bytes(getattr(self.local.last, "token", None) or token) == token:
            _in_use.discard(self)

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:  # noqa: FBT001, FBT002
        """Add to the remaining life of a lock with a ``timeout``, or replace it.

        Args:
            additional_time: Seconds, more than 0.
            replace_ttl: True to replace the remaining life instead of adding to it; default False.

        Raises:
            LockError: It is not held, or has no timeout.
            LockNotOwnedError: It expired or was taken before.
        """
        self._token("extend", fixed=True)
        return await self.do_extend(additional_time, replace_ttl)

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:  # noqa: FBT001
        """What ``extend`` calls.

        Args:
            additional_time: As there.
            replace_ttl: As there.

        Raises:
            LockError: It is not held.
            LockNotOwnedError: It expired or was taken before.
        """
        return await self._set_life(
            "extend", seconds(additional_time, "additional_time"), adds=not replace_ttl
        )

    async def reacquire(self) -> Literal[True]:
        """Set the remaining life of a lock back to its ``timeout``.

        Raises:
            LockError: It is not held, or has no timeout.
            LockNotOwnedError: It expired or was taken before.
        """
        self._token("reacquire", fixed=True)
        return await self.do_reacquire()

    async def do_reacquire(self) -> Literal[True]:
        """What ``reacquire`` calls.

        Raises:
            LockError: It is not held.
            LockNotOwnedError: It expired or was taken before.
        """
        return await self._set_life("reacquire", seconds(self.timeout, "timeout"), adds=False)

    async def _set_life(self, what: str, life: float, *, adds: bool) -> Literal[True]:
        token = self._token(what)
        lease: AsyncLease | None = self._lease_of(token)
        try:
            with translated():
                if lease is not None:
                    await lease.extend(longer(lease, life) if adds else life)
                elif ours := text_of_ours(token):
                    client = _client_of(self.redis)
                    found = await client.inspect(self._what, waiters=0)
                    left = found.ttl_left if adds and found.held and not found.foreign else 0.0
                    await client.extend(self._what, ours, left + life)
                else:
                    words = token, int(life * 1000), "0" if adds else "1"
                    if not await self.redis.eval(self.LUA_EXTEND_SCRIPT, 1, self._where, *words):
                        raise self._not_owned(what)
        except (pawlock.NotHeld, pawlock.LeaseLost) as error:
            raise self._not_owned(what, error) from error
        return True

    async def locked(self) -> bool:
        """Whether anybody holds the lock now."""
        with translated():
            return await _client_of(self.redis).lock(self._what).locked()

    async def owned(self) -> bool:
        """Whether this lock holds it now: asked on the server, so a lock that was deleted there is not owned."""
        lease, token = self.lease, self.local.token
        if lease is None:
            stored = token and await self.redis.get(self._where)
            return bool(stored) and as_bytes(stored) == as_bytes(token)
        if lease.lost:
            return False
        with translated():
            found = await _client_of(self.redis).inspect(self._what, waiters=0)
        return found.held and not found.foreign and found.fence == lease.fence

    async def __aenter__(self) -> Self:
        if await self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified", self._shown)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except (redis.exceptions.LockError, pawlock.BackendError) as failed:
            if error is not None:
                # The body failed already: its own exception is what the caller has to see.
                error.add_note(f"the release of the lock {self._shown!r} failed as well: {failed}")
            elif self.raise_on_release_error or isinstance(failed, pawlock.BackendError):
                raise
            else:
                _log.warning("%s", failed)


class AsyncRedisLocks:
    """Put before ``redis.asyncio.Redis`` in a class: its ``lock()`` makes pawlock's lock unless ``lock_class`` is given.

    ::

        class Redis(pawlock.compat.redis.AsyncRedisLocks, redis.asyncio.Redis): ...
    """

    def lock(self, *args: Any, lock_class: Any = None, **kwargs: Any) -> Any:
        """As ``redis.asyncio.Redis.lock``.

        Args:
            args: As there.
            lock_class: Default ``pawlock.compat.redis.AsyncLock``.
            kwargs: As there.
        """
        return super().lock(*args, lock_class=lock_class or AsyncLock, **kwargs)  # type: ignore[misc]


class AsyncRedis(AsyncRedisLocks, redis.asyncio.Redis):  # type: ignore[misc] # so are redis-py's bases
    """``redis.asyncio.Redis`` whose ``lock()`` makes pawlock's lock."""
