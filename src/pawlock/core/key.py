"""Keys that are shared with programs of other libraries: how each of them spells a lock, and how its waiters wake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, overload

from pawlock.core.names import check_text
from pawlock.core.options import check_choice
from pawlock.errors import ConfigurationError

__all__ = ["Key", "Wake"]

Wake = tuple[Literal["publish"], str, str] | tuple[Literal["push"], str, int]
"""What a release sends to waiters of others: ``("publish", channel, message)`` or ``("push", list, ttl in ms)``."""

_LONGEST_WAKE = 1000
_LONGEST_PUSH_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the server as it stands, shared with programs that use another library; stands where a name may.

    The constructors spell the key as the library does, and set what its waiters need: ``Key.spring``,
    ``Key.python_redis_lock``, ``Key.redisson``, … In ``lease.name``, errors and logs it is ``key:`` and the key.

    Args:
        key: Any text but the empty one, byte for byte. Bytes that are no UTF-8 are written as ``os.fsdecode`` does.
        wire: How its holder is stored: ``"plain"`` (default), a string with an expiry, as ``SET NX PX`` writes;
            ``"redisson"``, a hash of one field.
        wake: What a release that leaves the key free sends to sleeping waiters of others; None (default): nothing.
            ``("publish", channel, message)``, or ``("push", list, ttl_ms)``: the list is replaced by one element.
        fence: Where fencing tokens come from: ``"own"`` (default), or ``"redisson"``: the counter of an
            ``RFencedLock`` is raised too.

    Raises:
        ConfigurationError: It can never be a key of a lock, or a part of it is not what it must be.
    """

    key: str
    wire: Literal["plain", "redisson"] = "plain"
    wake: Wake | None = None
    fence: Literal["own", "redisson"] = "own"

    def __post_init__(self) -> None:
        if not check_text(self.key, "key", raw=True):
            raise ConfigurationError("key must be at least 1 byte, got an empty string")
        check_choice(self.wire, "wire", ("plain", "redisson"))
        check_choice(self.fence, "fence", ("own", "redisson"))
        if self.wire == "plain" and self.fence != "own":
            hint = "use Key.redisson(name, fenced=True)"
            raise ConfigurationError(f"fence='redisson' needs wire='redisson': {hint}")
        if self.wake is not None:
            _check_wake(self.wake)
            if self.wire != "plain":
                text = "wake is for wire='plain': the redisson wire wakes Redisson by itself"
                raise ConfigurationError(text)

    @property
    def name(self) -> str:
        """What it is called in ``lease.name``, errors and logs; what is no text stands as an escape."""
        return "key:" + self.key.encode(errors="surrogateescape").decode(errors="backslashreplace")

    @classmethod
    def redisson(cls, name: str, *, fenced: bool = False) -> Key:
        """The key of an ``RLock``, ``RSpinLock`` or ``RFencedLock`` of Redisson.

        Args:
            name: What ``getLock`` was given; with a ``NameMapper``, what that made of it.
            fenced: Whether fencing tokens come from the counter of an ``RFencedLock`` of that name, and raise it.

        Raises:
            ConfigurationError: It can never be a key.
        """
        return cls(name, "redisson", None, "redisson" if fenced else "own")

    @classmethod
    def spring(cls, registry: str, key: str) -> Key:
        """The key of a lock of Spring Integration's ``RedisLockRegistry``; a release wakes ``PUB_SUB_LOCK``.

        Args:
            registry: The registry key that the ``RedisLockRegistry`` was made with.
            key: What ``obtain`` was given, as text.

        Raises:
            ConfigurationError: It can never be a key.
        """
        _check_part(registry, "registry")
        whole = f"{registry}:{_check_part(key, 'key')}"
        return cls(whole, wake=("publish", f"{registry}-channel:{whole}", whole))

    @classmethod
    def python_redis_lock(cls, name: str) -> Key:
        """The key of a lock of python-redis-lock, ``lock:`` and the name; a release wakes one of its waiters.

        Args:
            name: The name of ``redis_lock.Lock``.

        Raises:
            ConfigurationError: It can never be a key.
        """
        return cls(f"lock:{_check_part(name, 'name')}", wake=("push", f"lock-signal:{name}", 1000))

    @overload
    @classmethod
    def rueidislock(cls, name: str, *, majority: Literal[1]) -> Key: ...
    @overload
    @classmethod
    def rueidislock(cls, name: str, *, majority: Literal[2, 3, 4, 5] = 2) -> tuple[Key, ...]: ...

    @classmethod
    def rueidislock(cls, name: str, *, majority: Literal[1, 2, 3, 4, 5] = 2) -> Key | tuple[Key, ...]:
        """The keys of a lock of rueidislock: with its default majority three, all for one ``multi_lock``.

        Args:
            name: What ``WithContext`` was given.
            majority: Its ``KeyMajority``; default 2. With 1 there is a single key, for ``lock``.

        Raises:
            ConfigurationError: It can never be a key, or the majority is not 1 to 5.
        """
        _check_part(name, "name")
        if type(cast("object", majority)) is not int or majority not in range(1, 6):
            raise ConfigurationError(f"majority must be 1 to 5, got {majority!r:.40}")
        keys = tuple(cls(f"rueidislock:{i}:{name}") for i in range(2 * majority - 1))
        return cls("rueidislock:0:" + name) if majority == 1 else keys

    @classmethod
    def shedlock(cls, job: str, *, env: str = "default") -> Key:
        """The key of a lock of ShedLock, which must be set to ``safeUpdate(true)``: else it deletes others' locks.

        Args:
            job: The ``name`` of ``@SchedulerLock``.
            env: The environment that the ``RedisLockProvider`` was made with.

        Raises:
            ConfigurationError: It can never be a key.
        """
        return cls(f"job-lock:{_check_part(env, 'env')}:{_check_part(job, 'job')}")

    @classmethod
    def redlock_net(cls, resource: str) -> Key:
        """The key of a lock of RedLock.net with its default ``RedisKeyFormat``, ``redlock:`` and the resource.

        Args:
            resource: What ``CreateLock`` was given.

        Raises:
            ConfigurationError: It can never be a key.
        """
        return cls(f"redlock:{_check_part(resource, 'resource')}")

    @classmethod
    def redis_semaphore(cls, key: str) -> Key:
        """The key of a ``Mutex`` of the npm package redis-semaphore, ``mutex:`` and the key.

        Args:
            key: What ``new Mutex`` was given.

        Raises:
            ConfigurationError: It can never be a key.
        """
        return cls(f"mutex:{_check_part(key, 'key')}")


def _check_part(part: object, what: str) -> str:
    if not isinstance(part, str) or not part:
        raise ConfigurationError(f"{what} must be text of at least one character, got {part!r:.40}")
    return part


def _check_wake(wake: object) -> None:
    # By hand: what a caller without a type checker gives comes here too.
    match wake:
        case ("publish", str(target), str(message)):
            right = len(message.encode(errors="replace")) <= _LONGEST_WAKE
        case ("push", str(target), int(ttl_ms)) if not isinstance(ttl_ms, bool):
            right = 1 <= ttl_ms <= _LONGEST_PUSH_MS
        case _:
            target, right = "", False
    if not right or not 1 <= len(target.encode(errors="replace")) <= _LONGEST_WAKE:
        form = "('publish', channel, message) or ('push', list, ttl_ms)"
        most = f"texts of at most {_LONGEST_WAKE} bytes, ttl_ms 1 to {_LONGEST_PUSH_MS}"
        raise ConfigurationError(f"wake must be {form}, {most}; got {wake!r:.60}")
