"""What the simulator's store leaves out: the commands of sessions and histories, and all that the probe asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pawl.testing.sim.store import Answer, Refused, Store, Unsupported, Words

__all__ = ["FullStore"]

_INFO = {
    b"server": b"redis_version:7.0.0\r\nredis_mode:standalone\r\nuptime_in_seconds:1000000",
    b"replication": b"role:master\r\nconnected_slaves:0",
    b"memory": b"maxmemory:0\r\nmaxmemory_policy:noeviction",
    b"persistence": b"loading:0\r\naof_enabled:1",
}


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused("ERR value is not an integer or out of range") from None


class FullStore(Store):
    """Every command that any script of pawl uses; any other fails loudly, as in the simulator."""

    dirty: bool
    changes: int
    failure: Unsupported | None

    def call(self, name: bytes, *args: Any) -> Answer:
        """See ``Store.call``."""
        more = _MORE.get(name)
        if more is None:
            return super().call(name, *args)
        method, writes = more
        self.dirty = self.dirty or writes
        self.changes = self.changes + int(writes)
        try:
            return method(self, tuple([arg if type(arg) is bytes else b"%d" % arg for arg in args]))
        except Refused as refused:
            return b"e", refused.args[0].encode()
        except Unsupported as failure:
            self.failure = failure
            return b"x", str(failure).encode()

    def _info(self, _args: Words) -> Answer:
        return b"v", _INFO.get(_args[0], b"")

    def _zrangebylex(self, args: Words) -> Answer:
        found = self._zset(args[0])
        members = [
            member
            for member in (found.order() if found is not None else ())
            if _after(member, args[1]) and _before(member, args[2])
        ]
        if len(args) == 6 and args[3].upper() == b"LIMIT":
            return (b"a", *_limited(members, args[4], args[5]))
        if len(args) != 3:
            raise Unsupported(f"ZRANGEBYLEX with {args[3:]}")
        return (b"a", *members)

    # Lists ------------------------------------------------------------------------------------------------------

    # Kept as a hash of numbers would be: the store copies and tells apart texts, hashes and sorted sets alone.

    def _list(self, key: bytes) -> list[bytes]:
        return list((self._hash(key) or {}).values())

    def _put_list(self, key: bytes, values: list[bytes]) -> None:
        if values:
            self.data[key] = {b"%d" % at: value for at, value in enumerate(values)}
        else:
            self.drop(key)

    def _lpush(self, args: Words) -> Answer:
        values = [*reversed(args[1:]), *self._list(args[0])]
        self._put_list(args[0], values)
        return b"v", len(values)

    def _lrange(self, args: Words) -> Answer:
        return (b"a", *_slice(self._list(args[0]), args[1], args[2]))

    def _ltrim(self, args: Words) -> Answer:
        self._put_list(args[0], _slice(self._list(args[0]), args[1], args[2]))
        return b"s", b"OK"


def _limited(members: list[bytes], offset: bytes, count: bytes) -> list[bytes]:
    start, many = _number(offset), _number(count)
    return members[start:] if many < 0 else members[start : start + many]


def _slice(values: list[bytes], start: bytes, stop: bytes) -> list[bytes]:
    first, last = _number(start), _number(stop)
    first = max(0, first + len(values)) if first < 0 else first
    last = last + len(values) if last < 0 else last
    return values[first : last + 1] if last >= first else []


def _after(member: bytes, bound: bytes) -> bool:
    return bound != b"+" and (
        bound == b"-" or member > bound[1:] or (bound[:1] == b"[" and member == bound[1:])
    )


def _before(member: bytes, bound: bytes) -> bool:
    return bound != b"-" and (
        bound == b"+" or member < bound[1:] or (bound[:1] == b"[" and member == bound[1:])
    )


_MORE: dict[bytes, tuple[Callable[[FullStore, Words], Answer], bool]] = {
    b"INFO": (FullStore._info, False),
    b"LPUSH": (FullStore._lpush, True),
    b"LRANGE": (FullStore._lrange, False),
    b"LTRIM": (FullStore._ltrim, True),
    b"ZRANGEBYLEX": (FullStore._zrangebylex, False),
}
