"""Fences in Redis: commands that run only while no later holder wrote the key."""

from __future__ import annotations

import inspect
import math
import re
from datetime import timedelta
from importlib.resources import files
from typing import Any, Protocol, TypeAlias, cast

from pawlock.errors import ConfigurationError, WrongKey
from pawlock.fencing._fence import Fenced, fence_of, stale

__all__ = ["AsyncRedisGuard", "RedisGuard"]

_Word: TypeAlias = str | bytes | int | float
_DAY = 86400.0
# Where a cluster finds the slot: the text between the first brace and the next closing one.
_TAG = re.compile(r"[^{]*\{[^}]+\}")
# The guards of keys without braces and of keys with a tag: no two keys have one guard.
_GUARD = re.compile(r"\{[^{}]+\}:guard|.*\{[^}]+\}.*:pawlock:guard", re.DOTALL)
_COMMAND_AND_KEY = 2
# What stands behind these is no key: an operation, a number of keys, a subcommand.
_KEY_LATER = frozenset(
    {
        "BITOP", "BLMPOP", "BZMPOP", "CLUSTER", "EVAL", "EVALSHA", "EVALSHA_RO", "EVAL_RO", "FCALL", "FCALL_RO",
        "FLUSHALL", "FLUSHDB", "FUNCTION", "LMPOP", "MEMORY", "MIGRATE", "MSETEX", "OBJECT", "PFDEBUG", "SINTERCARD",
        "SWAPDB", "XGROUP", "XINFO", "XREAD", "XREADGROUP", "ZDIFF", "ZINTER", "ZINTERCARD", "ZMPOP", "ZUNION",
    }
)  # fmt: skip


class _Client(Protocol):
    def register_script(self, script: Any) -> Any: ...


def _fence_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise ConfigurationError(f"a guarded key must be text, got {key!r:.40}")
    if _GUARD.fullmatch(key):
        raise ConfigurationError(f"key {key!r:.60} is the place of another key's fence")
    if _TAG.match(key):
        return f"{key}:pawlock:guard"
    if "{" in key or "}" in key:
        raise ConfigurationError(
            f"key {key!r:.60} has braces that are not a hash tag: its fence would be in another slot"
        )
    return f"{{{key}}}:guard"


def _milliseconds(keep: object) -> int:
    if keep is None:
        return 0
    number = keep.total_seconds() if isinstance(keep, timedelta) else keep
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < math.inf:
        raise ConfigurationError(
            f"keep must be more than 0 seconds, or None to keep fences without a time limit, got {keep!r:.40}"
        )
    return math.ceil(number * 1000)


class _BaseGuard:
    __slots__ = ("_keep_ms", "_script")

    is_async = False

    def __init__(self, client: _Client, *, keep: float | timedelta | None = _DAY) -> None:
        run = getattr(client, "execute_command", None)
        if run is None or inspect.iscoroutinefunction(run) is not self.is_async:
            wanted = "redis.asyncio.Redis" if self.is_async else "redis.Redis"
            text = f"{type(self).__name__} needs a {wanted}, not {type(client).__module__}.{type(client).__name__}"
            raise ConfigurationError(text)
        if hasattr(client, "execute"):
            raise ConfigurationError(
                f"{type(self).__name__} needs a client, not a pipeline: it must read each answer"
            )
        self._keep_ms: int = _milliseconds(keep)
        text = files("pawlock.fencing").joinpath("guard.lua").read_text(encoding="ascii")
        self._script: Any = client.register_script(text)

    def _call(self, lease: Fenced | int, words: tuple[_Word, ...]) -> tuple[str, list[str], list[_Word]]:
        if len(words) < _COMMAND_AND_KEY:
            raise ConfigurationError("pass a command and its key: 'SET', 'order:42', …")
        name = words[0].decode(errors="replace") if isinstance(words[0], bytes) else str(words[0])
        if name.upper() in _KEY_LATER:
            raise ConfigurationError(
                f"{name} does not have its key as the first argument, so its write would not be guarded"
            )
        key = cast("str", words[1])
        return key, [key, _fence_key(key)], [fence_of(lease), self._keep_ms, words[0], *words[2:]]

    def _claim_args(self, lease: Fenced | int, key: str) -> tuple[list[str], list[_Word]]:
        return [key, _fence_key(key)], [fence_of(lease), self._keep_ms]

    @staticmethod
    def _result(lease: Fenced | int, key: str, reply: list[Any]) -> Any:
        if reply[0] == -1:
            raise WrongKey(f"{_fence_key(key)} has a value that is not a fencing token; nothing was written")
        if reply[0] == 0:
            raise stale(f"key {key}", lease, int(reply[1]))
        return reply[1] if len(reply) > 1 else None


class RedisGuard(_BaseGuard):
    """Runs commands on keys of Redis, unless a later holder claimed or wrote the key.

    Claim the key, read it, write it: without ``claim`` a late holder can still write between your read and your write.

    Beside each guarded key stands another, ``{key}:guard`` (of a key with a hash tag, ``key:pawlock:guard``), in the
    same slot of a cluster, with the greatest fence that claimed or wrote it. Comparing, noting and writing are one
    script. Only what goes through a guard is guarded, and only its first key: what ``MSET``, ``RENAME`` or
    ``SUNIONSTORE`` write to others is not.

    Args:
        client: A ``redis.Redis`` or ``redis.RedisCluster``. Its own retries apply: a command that must not run twice,
            such as ``INCR``, needs a client without them.
        keep: How many seconds a fence is remembered after the last write; default 86400, a day: longer than locks
            remember theirs; a writer that is late by more is not refused. None: without a time limit.

    Raises:
        ConfigurationError: A client or ``keep`` that can never work.
    """

    __slots__ = ()

    def __call__(self, lease: Fenced | int, /, *command: _Word) -> Any:
        """Run a command that works on one key.

        Args:
            lease: The lease under which this is written, or its fence.
            command: The command, its key, and the rest: ``"SET", "order:42", "paid"``.

        Returns:
            What the script answers for it, which is the command's own reply before redis-py makes it Python's.

        Raises:
            StaleFence: A later holder claimed or wrote the key, or the lease is degraded. Nothing was written.
            WrongKey: the guard of the key holds something that is no fence. Nothing was written.
            ConfigurationError: A command that can never work.
        """
        key, keys, args = self._call(lease, command)
        return self._result(lease, key, self._script(keys=keys, args=args))

    def claim(self, lease: Fenced | int, key: str) -> None:
        """Write the fence of a lease beside a key and nothing else: from then on, earlier holders are refused.

        Call it before you read what your write depends on.

        Args:
            lease: The lease, or its fence.
            key: The key.

        Raises:
            StaleFence: A later holder claimed or wrote the key, or the lease is degraded.
            WrongKey: the guard of the key holds something that is no fence.
        """
        keys, args = self._claim_args(lease, key)
        self._result(lease, key, self._script(keys=keys, args=args))


class AsyncRedisGuard(_BaseGuard):
    """``RedisGuard`` for asyncio.

    Args:
        client: A ``redis.asyncio.Redis`` or ``redis.asyncio.RedisCluster``. Its own retries apply: a command that must
            not run twice, such as ``INCR``, needs a client without them.
        keep: As for ``RedisGuard``.

    Raises:
        ConfigurationError: A client or ``keep`` that can never work.
    """

    __slots__ = ()

    is_async = True

    async def __call__(self, lease: Fenced | int, /, *command: _Word) -> Any:
        """Run a command that works on one key.

        Args:
            lease: The lease under which this is written, or its fence.
            command: The command, its key, and the rest: ``"SET", "order:42", "paid"``.

        Returns:
            What the script answers for it, which is the command's own reply before redis-py makes it Python's.

        Raises:
            StaleFence: A later holder claimed or wrote the key, or the lease is degraded. Nothing was written.
            WrongKey: the guard of the key holds something that is no fence. Nothing was written.
            ConfigurationError: A command that can never work.
        """
        key, keys, args = self._call(lease, command)
        return self._result(lease, key, await self._script(keys=keys, args=args))

    async def claim(self, lease: Fenced | int, key: str) -> None:
        """Write the fence of a lease beside a key and nothing else: from then on, earlier holders are refused.

        Call it before you read what your write depends on.

        Args:
            lease: The lease, or its fence.
            key: The key.

        Raises:
            StaleFence: A later holder claimed or wrote the key, or the lease is degraded.
            WrongKey: the guard of the key holds something that is no fence.
        """
        keys, args = self._claim_args(lease, key)
        self._result(lease, key, await self._script(keys=keys, args=args))
