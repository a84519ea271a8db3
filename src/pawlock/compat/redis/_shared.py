"""What the sync and the asyncio drop-in for redis-py's lock have in common: arguments, errors, one client per pool."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, cast

import redis.exceptions as theirs

import pawlock

__all__ = ["Clients", "LockError", "LockNotOwnedError", "Settings", "longer", "seconds", "translated"]

C = TypeVar("C")


class LockError(theirs.LockError, pawlock.PawlockError):
    """The lock was not acquired in time, or was never held. redis-py's ``LockError`` and a ``PawlockError`` at once."""

    code = "LOCK_ERROR"

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        super().__init__(message, lock_name)
        # redis-py 5 leaves out its parents' constructors.
        BaseException.__init__(self, message)
        self.name = lock_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, {self.lock_name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.lock_name), {"code": self.code}


class LockNotOwnedError(theirs.LockNotOwnedError, LockError):
    """The lock expired or was taken before it was released or extended: redis-py's class, and a ``LockError``."""

    code = "UNLOCK_FAILED"


class _Unavailable(theirs.ConnectionError, pawlock.BackendUnavailable):
    """The server did not answer."""


class _OutOfMemory(theirs.OutOfMemoryError, pawlock.BackendOutOfMemory):
    """The server has no memory left for a new lock."""


class _ReadOnly(theirs.ReadOnlyError, pawlock.BackendReadOnly):
    """The server is a replica."""


class _Denied(theirs.NoPermissionError, pawlock.BackendDenied):
    """The server's user may not do this."""


_BOTH: tuple[tuple[type[pawlock.PawlockError], type[pawlock.PawlockError]], ...] = (
    (pawlock.BackendUnavailable, _Unavailable),
    (pawlock.BackendOutOfMemory, _OutOfMemory),
    (pawlock.BackendReadOnly, _ReadOnly),
    (pawlock.BackendDenied, _Denied),
)


@contextlib.contextmanager
def translated() -> Generator[None]:
    """Raise errors of the server as redis-py's class and pawlock's at once, so that either `except` catches them."""
    try:
        yield
    except pawlock.BackendError as error:
        combined = next(
            (one for kind, one in _BOTH if type(error) is kind), None
        )  # subclasses say more: kept
        if combined is None:
            raise
        raised = combined(error.text)
        raised.__dict__.update(error.__dict__)
        raise raised from error


class Clients(Generic[C]):
    """One pawlock client for each pool of redis-py, made when its first lock is used and gone with the pool."""

    _KEPT_AS = "_pawlock_client"

    def __init__(self, connect: Callable[[Any], C]) -> None:
        self._connect = connect

    @staticmethod
    def keeper(redis: Any) -> Any:
        """What the client is kept by, and ends with: the pool; a cluster client has none and is it itself."""
        return getattr(redis, "connection_pool", None) or redis

    def of(self, redis: Any) -> C:
        """The client that leads where this client of redis-py leads."""
        # Libraries make a Redis object for each call around one pool; a cluster client has no such pool.
        # Kept by the pool itself: the two refer to each other, and end together. Without a lock, which a fork or a
        # signal handler could find taken permanently; of two clients made at once, the first is used by both.
        kept = cast("dict[str, C]", self.keeper(redis).__dict__)
        found = kept.get(self._KEPT_AS)
        return kept.setdefault(self._KEPT_AS, self._connect(redis)) if found is None else found

    def forget(self, keeper: Any) -> C | None:
        """Take away the client that this pool keeps: the next lock makes another one."""
        return cast("dict[str, C]", keeper.__dict__).pop(self._KEPT_AS, None)


def seconds(value: object, what: str) -> float:
    """A number of seconds that was given where redis-py takes one.

    Raises:
        ConfigurationError: It is no finite number, or negative.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise pawlock.ConfigurationError(f"{what} must be a number of seconds, 0 or more; got {value!r}")
    return float(value)


def longer(lease: Any, more: float) -> float:
    """The life in seconds that a lease has once ``more`` is added to what is left of its key's.

    Validity ends 1 % of the TTL and 2 ms before the key. In whole milliseconds, rounded down: as with redis-py, which
    adds on the server, the key never lives longer than its former end and ``more``.
    """
    left = float(lease.remaining())
    life = left + 0.01 * lease.ttl + 0.002 if left else 0.0
    return (math.floor(life * 1000 + 1e-6) + math.floor(more * 1000 + 1e-6)) / 1000


class Settings:
    """The arguments of redis-py's ``Lock``, checked, and the lease that the lock holds.

    Attributes:
        redis: The client that was given; nothing is sent through its pool.
        name: As it was given.
        timeout: The TTL in seconds; None or 0: 30 seconds, renewed while it is held.
        sleep: As it was given; not used.
        blocking: Whether ``acquire`` waits.
        blocking_timeout: Seconds that it waits at most; None: as long as it takes.
        thread_local: Whether a thread sees only what it acquired itself.
        raise_on_release_error: Whether leaving a ``with`` block raises where the lock was lost.
        local: ``local.token`` is the value of the key while the lock is held, else None.
    """

    lua_release: Any = None
    lua_extend: Any = None
    lua_reacquire: Any = None

    redis: Any
    local: Any

    def _set(
        self,
        redis: Any,
        name: str | bytes | memoryview | pawlock.Key,
        times: tuple[float | None, float, float | None],
        flags: tuple[bool, bool, bool],
    ) -> None:
        timeout, sleep, blocking_timeout = times
        blocking, thread_local, raise_on_release_error = flags
        self.redis = redis
        self.name: Any = name
        self.timeout: Any = timeout
        self.sleep: Any = sleep
        self.blocking: bool = blocking
        self.blocking_timeout: Any = blocking_timeout
        self.thread_local: bool = bool(thread_local)
        self.raise_on_release_error: bool = bool(raise_on_release_error)
        self.local = threading.local() if self.thread_local else SimpleNamespace()
        self.local.token = None
        self.local.lease = None
        self._made: tuple[Any, ...] = (None,)

    def _lock(self, client: Any) -> Any:
        """The lock of pawlock's that it stands for: made once, and anew where somebody assigned another setting."""
        made, what = self._made, (client, self.name, self.timeout)
        if made[1:] != what:
            self._made = made = (client.lock(self._what, **self._options), *what)
        return made[0]

    def register_scripts(self) -> None:
        """Nothing to register: pawlock brings its own scripts. Here since redis-py has it."""

    @property
    def _what(self) -> str | pawlock.Key:
        """What pawlock is asked to lock."""
        return self.name if isinstance(self.name, pawlock.Key) else self._key

    @property
    def _key(self) -> str:
        if isinstance(self.name, pawlock.Key):
            return self.name.key
        if isinstance(self.name, str):
            return self.name
        return bytes(self.name).decode()

    @property
    def _options(self) -> dict[str, Any]:
        """TTL and renewal; a lock without a timeout is renewed, so that a crash never leaves it behind."""
        if not self.timeout:
            return {"renew": True, "handover": 0, "on_exit": "warn"}
        ttl = seconds(self.timeout, "timeout")
        return {"ttl": ttl, "renew": False, "handover": 0, "on_exit": "warn"}

    def _wait(
        self, blocking: object, blocking_timeout: float | None, token: object
    ) -> tuple[bool, float | None]:
        """Whether to wait, and how long at most."""
        if token is not None:
            raise pawlock.ConfigurationError(
                "acquire(token=…) is not supported: the token is a secret of 128 random bits that pawlock makes for each "
                "acquisition; read it from lock.local.token, or pass a held lock on with lock.lease.detach()"
            )
        wanted = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        limit = None if wanted is None else seconds(wanted, "blocking_timeout")
        if not (self.blocking if blocking is None else blocking):
            return False, 0.0
        return True, limit

    def _took(self, lease: Any) -> None:
        self.local.lease = lease
        self.local.token = lease._record.hold.token.encode()  # noqa: SLF001 - lease.token would end local hand-offs

    def _held(self, what: str, *, fixed: bool) -> Any:
        """The lease of this lock as this thread may see it."""
        lease = getattr(self.local, "lease", None)
        if lease is None:
            raise LockError(f"Cannot {what} an unlocked lock", self._key)
        if fixed and not self.timeout:
            raise LockError(
                f"Cannot {what} a lock with no timeout: pawlock renews it while it is held", self._key
            )
        return lease

    def _let_go(self) -> None:
        self.local.lease = self.local.token = None

    def _not_owned(self, what: str, error: BaseException) -> LockNotOwnedError:
        why = error.text if isinstance(error, pawlock.PawlockError) else str(error)
        found = LockNotOwnedError(f"Cannot {what} a lock that's no longer owned: {why}", self._key)
        if what != "release":
            found.code = "EXTEND_FAILED"
        return found

    @property
    def lease(self) -> Any:
        """The pawlock lease that this lock holds, or None: ``check()``, ``lost``, ``valid_until``, ``detach()``."""
        return getattr(self.local, "lease", None)

    @property
    def fence(self) -> int:
        """The fencing token of the present acquisition: increases monotonically from holder to holder.

        Raises:
            LockError: The lock is not held.
        """
        return int(self._held("read the fencing token of", fixed=False).fence)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._key!r} timeout={self.timeout}>"
