"""What the sync and the asyncio drop-in for redis-py's lock have in common: arguments, errors, one client per pool."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import threading
from collections.abc import Callable, Generator, Mapping
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from sys import float_info
from types import MappingProxyType, SimpleNamespace
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

import redis.exceptions as theirs

import pawlock

__all__ = [
    "CONNECT",
    "Clients",
    "LockError",
    "LockNotOwnedError",
    "Settings",
    "as_bytes",
    "longer",
    "seconds",
    "text_of_ours",
    "translated",
]

C = TypeVar("C")

CONNECT: Mapping[str, Any] = MappingProxyType({"namespace": "", "fence_ttl": 50})
"""How the client behind a pool is made. Programs have a lock for each order, on servers that were sized for keys that go
with the release: the record of fencing tokens stays for less than a minute."""

_OURS = re.compile(r"[0-9A-Za-z]{22,}@")


class LockError(theirs.LockError, pawlock.PawlockError):
    """The lock was not acquired in time, or was never held. redis-py's ``LockError`` and a ``PawlockError`` at once."""

    code = "LOCK_ERROR"

    def __init__(self, message: str, lock_name: str | None = None) -> None:
        super().__init__(message, lock_name)
        # redis-py 5 leaves out its parents' constructors.
        self._made_of(message, lock_name)
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


def seconds(value: object, what: str, *, least: float = 0.0, most: float = float_info.max) -> float:
    """A number of seconds that was given where redis-py takes one.

    Raises:
        ConfigurationError: It is no number, or none of these.
    """
    number: Any = value
    if isinstance(value, bool) or not isinstance(value, Real | Decimal) or not least <= number <= most:
        raise pawlock.ConfigurationError(f"{what} must be a number of seconds, 0 or more; got {value!r}")
    return float(number)


def as_bytes(value: object) -> bytes:
    """What redis-py sends of a name or a token: of text UTF-8, whatever the encoding of its client, as hiredis packs it.

    Raises:
        DataError: redis-py does not send such a thing.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise theirs.DataError(f"a name is text, bytes or a number, not {type(value).__name__}")
    return str(value).encode()


@lru_cache(maxsize=64)
def _key_of(sent: bytes) -> pawlock.Key:
    # Programs that did not move poll, and so does pawlock for a key that it shares with them; its own waiters hear this.
    channel = f"pawlock:wake:{hashlib.sha256(sent).hexdigest()}"
    return pawlock.Key(sent.decode(errors="surrogateescape"), wake=("publish", channel, "free"))


def text_of_ours(token: bytes) -> str:
    """The text of a token that pawlock made; "" of one of redis-py, or of a caller's own choice."""
    with contextlib.suppress(UnicodeDecodeError):
        text = token.decode()
        if _OURS.match(text):
            return text
    return ""


def longer(lease: Any, more: float) -> float:
    """The life in seconds that a lease has once ``more`` is added to what is left of its key's.

    Validity ends 1 % of the TTL and 2 ms before the key. In whole milliseconds, rounded down: as with redis-py, which
    adds on the server, the key never lives longer than its former end and ``more``.
    """
    left = float(lease.remaining())
    life = left + 0.01 * lease.ttl + 0.002 if left else 0.0
    return (math.floor(life * 1000 + 1e-6) + math.floor(more * 1000 + 1e-6)) / 1000


class _Local:
    """``token`` as the present thread or task sees it: of what that acquired through this lock itself.

    For who releases what another acquired it is the last one.

    Args:
        who: The present thread or task; None where the last one is meant.
        last: Keeps the last one, and the lease that was acquired last, after its token.
    """

    def __init__(self, who: Callable[[], object], last: Any) -> None:
        self._who = who
        self.last = last
        # No leases: those of asyncio know their task. Of two that acquired it, the first one's has ended.
        self._own: WeakKeyDictionary[object, Any] = WeakKeyDictionary()

    @property
    def token(self) -> Any:
        """The value of the key while the lock is held, else None."""
        who = self._who()
        found = None if who is None else self._own.get(who)
        return getattr(self.last, "token", None) if found is None else found

    @token.setter
    def token(self, token: Any) -> None:
        who, before = self._who(), self.token
        if token is None:
            # Whoever acquired it: it is released.
            for each in self._own.keyrefs():
                if (one := each()) is not None and self._own.get(one) == before:
                    self._own.pop(one, None)
            if getattr(self.last, "token", None) != before:
                return
        elif who is not None:
            self._own[who] = token
        self.last.token = token


class Settings:
    """The arguments of redis-py's ``Lock``, checked, and the lease that the lock holds.

    Attributes:
        redis: The client that was given; nothing is sent through its pool.
        name: As it was given.
        timeout: The TTL in seconds; None or 0: 30 seconds, renewed while it is held.
        sleep: As it was given; not used.
        blocking: Whether ``acquire`` waits.
        blocking_timeout: Seconds that it waits at most; None: as long as it takes.
        thread_local: Whether a thread sees only what it acquired itself. If not, or in asyncio, one that acquired nothing
            through this lock sees what was acquired last.
        raise_on_release_error: Whether leaving a ``with`` block raises where the lock was lost.
        local: ``local.token`` is the value of the key while the lock is held, else None. Who puts it into another lock
            of that name, also in another process, may release and extend it there.
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
        self.local = _Local(
            self._caller(self.thread_local), threading.local() if self.thread_local else SimpleNamespace()
        )
        self._made: tuple[Any, ...] = (None,)

    @staticmethod
    def _caller(thread_local: bool) -> Callable[[], object]:  # noqa: FBT001 - as the argument of that name
        """Tells who calls, where several may hold the lock through one object one after the other; else None.

        No method of the lock, which would then refer to itself: one that is dropped would stay until Python's collector runs.
        """
        return (lambda: None) if thread_local else threading.current_thread

    def _lock(self, client: Any) -> Any:
        """The lock of pawlock's that it stands for: made once, and anew where somebody assigned another setting."""
        made, what = self._made, (client, self.name, self.timeout)
        if made[1:] != what:
            self._made = made = (client.lock(self._what, **self._options), *what)
        return made[0]

    def register_scripts(self) -> None:
        """Nothing to register: pawlock brings its own scripts. Here since redis-py has it."""

    @property
    def _what(self) -> pawlock.Key:
        """What pawlock is asked to lock: the key that redis-py makes of the name, byte for byte."""
        if isinstance(self.name, pawlock.Key):
            return self.name
        return _key_of(as_bytes(self.name))

    @property
    def _where(self) -> bytes:
        """The key, for redis-py's own scripts."""
        return self._what.key.encode(errors="surrogateescape")

    @property
    def _shown(self) -> str:
        """The name in errors."""
        if isinstance(self.name, pawlock.Key):
            return self.name.key
        if type(self.name) in (bytes, memoryview):
            return as_bytes(self.name).decode(errors="backslashreplace")
        return str(self.name)

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
            raise self._no_token()
        wanted = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        # A deadline that is over is no mistake: redis-py asks once.
        limit = (
            None
            if wanted is None
            else max(0.0, seconds(wanted, "blocking_timeout", least=-math.inf, most=math.inf))
        )
        if not (self.blocking if blocking is None else blocking):
            return False, 0.0
        return True, limit

    @staticmethod
    def _no_token() -> pawlock.ConfigurationError:
        """A caller wants to choose the token."""
        return pawlock.ConfigurationError(
            "a token of your own is not supported: it is a secret of 128 random bits that pawlock makes for each "
            "acquisition; call acquire() and read lock.local.token, or pass a held lock on with lock.lease.detach()"
        )

    def _took(self, lease: Any) -> None:
        token = lease.token.encode()
        self.local.token, self.local.last.mine = token, (token, lease)

    def _token(self, what: str, *, fixed: bool = False) -> bytes:
        """The token of this lock as this thread may see it: of what it acquired, or what somebody put there."""
        token = self.local.token
        if token is None:
            # It may well be locked: by another thread, object or process.
            raise LockError(f"Cannot {what} a lock that's not owned or is already unlocked", self._shown)
        if fixed and not self.timeout:
            raise LockError(
                f"Cannot {what} a lock with no timeout: pawlock renews it while it is held", self._shown
            )
        return as_bytes(token)

    def _lease_of(self, token: bytes) -> Any:
        """The lease that this lock has under that token, or None: it was acquired elsewhere, or is given back.

        Whether the server knows of the release is asked by the token then.
        """
        kept, lease = cast("tuple[bytes, Any]", getattr(self.local.last, "mine", None) or (b"", None))
        return lease if kept == token and lease.state != "released" else None

    def _let_go(self, token: bytes) -> None:
        """Forget a token that is released, unless the lock was acquired through this object again meanwhile."""
        if as_bytes(self.local.token or b"") == token:
            self.local.token = None

    def _not_owned(self, what: str, error: pawlock.PawlockError | None = None) -> LockNotOwnedError:
        why = "its token is not at the key" if error is None else error.text
        found = LockNotOwnedError(f"Cannot {what} a lock that's no longer owned: {why}", self._shown)
        if what != "release":
            found.code = "EXTEND_FAILED"
        return found

    @property
    def lease(self) -> Any:
        """The pawlock lease that this lock acquired, or None: ``check()``, ``lost``, ``valid_until``, ``detach()``."""
        token = self.local.token
        return None if token is None else self._lease_of(as_bytes(token))

    @property
    def fence(self) -> int:
        """The fencing token of the present acquisition: increases monotonically from holder to holder.

        Raises:
            LockError: The lock is not held, or was acquired elsewhere.
        """
        what = "read the fencing token of"
        lease = self._lease_of(self._token(what))
        if lease is None:
            raise LockError(
                f"Cannot {what} a lock that was acquired elsewhere: pass it on there", self._shown
            )
        return int(lease.fence)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._shown!r} timeout={self.timeout}>"
