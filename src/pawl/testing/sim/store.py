"""What one server keeps, and the commands that pawl's scripts use on it.

Exactly those commands and options, with Redis' rules for types, expiry, memory and replicas; anything else fails
loudly, so that a script can never pass here by a command that was guessed at. A test holds this to real servers,
command by command.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

from pawl.testing.sim.zset import ZSet

__all__ = ["COMMANDS", "Refused", "Store", "Unsupported", "Value", "ZSet"]

Words = tuple[bytes, ...]
Answer = tuple[Any, ...]
"""What a command answers: a letter for its kind (``v`` one value, ``a`` an array, ``s`` a status), then the values.

False stands for nil: that is what Redis gives to Lua."""

_OK: Answer = (b"s", b"OK")
_NONE: Answer = (b"v", False)
_WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
_SYNTAX = "ERR syntax error"
_NOT_AN_INT = "ERR value is not an integer or out of range"
_NO_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
_READ_ONLY = "READONLY You can't write against a read only replica."


class Refused(Exception):
    """An error reply; the text is the server's."""


class Unsupported(Exception):
    """A command or option that the node in memory does not have. The fault is the node's, so nothing may hide it."""


Value = bytes | dict[bytes, bytes] | ZSet


def _text(value: Any) -> bytes:
    """An argument as a script passes it, in the form in which the command gets it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused("ERR Lua redis lib command arguments must be strings or integers")
    return b"%d" % value if value == int(value) else b"%.17g" % value


def _integer(text: bytes) -> int:
    if not text.removeprefix(b"-").isdigit():
        raise Refused(_NOT_AN_INT)
    return int(text)


def _score_text(score: float) -> bytes:
    if score in (inf, -inf):
        return b"inf" if score > 0 else b"-inf"
    return b"%d" % score if score == int(score) else b"%.17g" % score


class Store:
    """The keys of one server.

    Attributes:
        data: Keys and what they hold.
        expires: Server time in ms after which a key is gone.
        now_ms: Server time at the start of the present command or script: what is past its expiry then is gone.
        now_us: The same in µs: what TIME tells.
        slip_us: How much later than ``now_us`` PTTL looks: some servers let time pass within a script.
        drift_us: How much that is, before TIME was asked (below 0) and afterwards.
        published: Called with each message: channel and text.
        info: Gives what INFO tells of the server.
        changes: How many commands that may write were run.
        no_memory: True while the server is at its ``maxmemory``.
        replica: True while it refuses writes.
        dirty: True once the present script ran a command that may write: the memory limit spares it from then on.
        declared: The keys of the present script, or None outside of scripts.
        failure: What the present script did that the node in memory cannot do.
    """

    def __init__(
        self, random: Random, published: Callable[[bytes, bytes], int], info: Callable[[], str] = str
    ) -> None:
        self.data: dict[bytes, Value] = {}
        self.expires: dict[bytes, int] = {}
        self.random = random
        self.published = published
        self.info = info
        self.now_ms: int = 0
        self.now_us: int = 0
        self.slip_us: int = 0
        self.drift_us: int = 0
        self.changes: int = 0
        self.no_memory: bool = False
        self.replica: bool = False
        self.dirty: bool = False
        self.declared: tuple[bytes, ...] | None = None
        self.failure: Unsupported | None = None

    def begin(self, now_us: int, declared: tuple[bytes, ...] | None, drift_us: int = 0) -> None:
        """Start a script or, without declared keys, a command, at a moment of server time."""
        self.now_us = now_us
        self.now_ms = now_us // 1000
        self.drift_us = drift_us
        self.slip_us = -drift_us
        self.dirty = False
        self.declared = declared

    # Running ----------------------------------------------------------------------------------------------------

    def call(self, name: bytes, *args: Any) -> Answer:
        """Run one command as a script's ``redis.call`` does.

        Returns:
            Its answer; an error reply has the letter ``e``. ``x`` stands for what the node in memory cannot do, which
            is kept in ``failure``.
        """
        try:
            entry = COMMANDS.get(name) or COMMANDS.get(name.upper())
            if entry is None:
                raise Unsupported(f"the command {name.decode(errors='replace')}")
            method, writes, needs_memory = entry
            if writes:
                if self.replica:
                    raise Refused(_READ_ONLY)
                if needs_memory and self.no_memory and not self.dirty:
                    raise Refused(_NO_MEMORY)
                self.dirty = True
                self.changes += 1
            for arg in args:
                if type(arg) is not bytes:
                    args = tuple([_text(one) for one in args])
                    break
            return method(self, args)
        except Refused as refused:
            return b"e", refused.args[0].encode()
        except Unsupported as failure:
            self.failure = failure
            return b"x", str(failure).encode()

    def lookup(self, key: bytes) -> Value | None:
        """What a key holds; one that is past its expiry is deleted here, as Redis does when it is touched."""
        if self.declared is not None and key not in self.declared:
            raise Unsupported(f"the undeclared key {key.decode(errors='replace')}")
        expiry = self.expires.get(key)
        if expiry is not None and expiry < self.now_ms:
            self.drop(key)
            return None
        return self.data.get(key)

    def drop(self, key: bytes) -> bool:
        """Delete a key; False if it was not there."""
        self.expires.pop(key, None)
        return self.data.pop(key, None) is not None

    def flush(self) -> None:
        """Delete everything."""
        self.data.clear()
        self.expires.clear()

    def snapshot(self) -> tuple[dict[bytes, Value], dict[bytes, int]]:
        """A copy of all keys and expiries, for ``restore``."""
        copied = {
            key: value if isinstance(value, bytes) else value.copy() for key, value in self.data.items()
        }
        return copied, dict(self.expires)

    def restore(self, kept: tuple[dict[bytes, Value], dict[bytes, int]]) -> None:
        """Go back to a copy."""
        self.data, self.expires = kept

    def _hash(self, key: bytes) -> dict[bytes, bytes] | None:
        value = self.lookup(key)
        if value is not None and type(value) is not dict:
            raise Refused(_WRONG_TYPE)
        return value

    def _zset(self, key: bytes) -> ZSet | None:
        value = self.lookup(key)
        if value is not None and type(value) is not ZSet:
            raise Refused(_WRONG_TYPE)
        return value

    # Keys -------------------------------------------------------------------------------------------------------

    def _del(self, args: Words) -> Answer:
        gone = 0
        for key in args:
            if self.lookup(key) is not None:
                gone += self.drop(key)
        return b"v", gone

    def _exists(self, args: Words) -> Answer:
        return b"v", sum([self.lookup(key) is not None for key in args])

    def _get(self, args: Words) -> Answer:
        value = self.lookup(args[0])
        if value is None:
            return _NONE
        if type(value) is not bytes:
            raise Refused(_WRONG_TYPE)
        return b"v", value

    def _set(self, args: Words) -> Answer:
        key, value, *options = args
        self.lookup(key)
        if not options:
            self.expires.pop(key, None)
        elif len(options) == 2 and options[0].upper() in (b"PXAT", b"PX"):
            expiry = _integer(options[1])
            if options[0].upper() == b"PX" and expiry > 0:
                # Counted from the beginning of the script, as a server does.
                expiry += self.now_ms
            if expiry <= 0:
                raise Refused("ERR invalid expire time in 'set' command")
            self.expires[key] = expiry
        else:
            raise Unsupported(f"SET with {options}")
        self.data[key] = value
        return _OK

    def _type(self, args: Words) -> Answer:
        value = self.lookup(args[0])
        if value is None:
            return b"s", b"none"
        return b"s", b"string" if isinstance(value, bytes) else b"hash" if isinstance(
            value, dict
        ) else b"zset"

    def _pexpireat(self, args: Words) -> Answer:
        if len(args) != 2:
            raise Unsupported(f"PEXPIREAT with {args[2:]}")
        key, expiry = args[0], _integer(args[1])
        if self.lookup(key) is None:
            return b"v", 0
        if expiry <= self.now_ms:
            self.drop(key)
        else:
            self.expires[key] = expiry
        return b"v", 1

    def _pttl(self, args: Words) -> Answer:
        key = args[0]
        if self.lookup(key) is None:
            return b"v", -2
        expiry = self.expires.get(key)
        if expiry is None:
            return b"v", -1
        return b"v", max(0, expiry - (self.now_us + self.slip_us) // 1000)

    def _pexpiretime(self, args: Words) -> Answer:
        if self.lookup(args[0]) is None:
            return b"v", -2
        return b"v", self.expires.get(args[0], -1)

    def _time(self, _args: Words) -> Answer:
        now = self.now_us
        self.slip_us = self.drift_us
        return b"a", b"%d" % (now // 1_000_000), b"%d" % (now % 1_000_000)

    def _info(self, _args: Words) -> Answer:
        return b"v", self.info().encode()

    def _publish(self, args: Words) -> Answer:
        return b"v", self.published(args[0], args[1])

    # Hashes -----------------------------------------------------------------------------------------------------

    def _hset(self, args: Words) -> Answer:
        key = args[0]
        if len(args) < 3 or len(args) % 2 == 0:
            raise Refused("ERR wrong number of arguments for 'hset' command")
        found = self._hash(key)
        if found is None:
            found = self.data[key] = {}
        had = len(found)
        for at in range(1, len(args), 2):
            found[args[at]] = args[at + 1]
        return b"v", len(found) - had

    def _hsetnx(self, args: Words) -> Answer:
        found = self._hash(args[0])
        if found is None:
            found = self.data[args[0]] = {}
        if args[1] in found:
            return b"v", 0
        found[args[1]] = args[2]
        return b"v", 1

    def _hget(self, args: Words) -> Answer:
        found = self._hash(args[0])
        return (b"v", found[args[1]]) if found is not None and args[1] in found else _NONE

    def _hmget(self, args: Words) -> Answer:
        found = self._hash(args[0])
        if found is None:
            return (b"a", *([False] * (len(args) - 1)))
        return (b"a", *[found.get(field, False) for field in args[1:]])

    def _hexists(self, args: Words) -> Answer:
        found = self._hash(args[0])
        return b"v", int(found is not None and args[1] in found)

    def _hdel(self, args: Words) -> Answer:
        found = self._hash(args[0])
        if found is None:
            return b"v", 0
        gone = sum([found.pop(field, None) is not None for field in args[1:]])
        if not found:
            self.drop(args[0])
        return b"v", gone

    def _hlen(self, args: Words) -> Answer:
        return b"v", len(self._hash(args[0]) or ())

    def _hvals(self, args: Words) -> Answer:
        return (b"a", *(self._hash(args[0]) or {}).values())

    def _hkeys(self, args: Words) -> Answer:
        return (b"a", *(self._hash(args[0]) or {}))

    def _hgetall(self, args: Words) -> Answer:
        answer: list[Any] = [b"a"]
        for field, value in (self._hash(args[0]) or {}).items():
            answer += (field, value)
        return tuple(answer)

    def _hincrby(self, args: Words) -> Answer:
        found = self._hash(args[0])
        if found is None:
            found = self.data[args[0]] = {}
        number = _integer(found.get(args[1], b"0")) + _integer(args[2])
        found[args[1]] = b"%d" % number
        return b"v", number

    def _hrandfield(self, args: Words) -> Answer:
        if len(args) != 3 or args[2].upper() != b"WITHVALUES" or (count := _integer(args[1])) < 0:
            raise Unsupported(f"HRANDFIELD with {args[1:]}")
        pairs = list((self._hash(args[0]) or {}).items())
        if count < len(pairs):
            pairs = self.random.sample(pairs, count)
        return (b"a", *[word for pair in pairs for word in pair])

    # Sorted sets ------------------------------------------------------------------------------------------------

    def _zadd(self, args: Words) -> Answer:
        key = args[0]
        if len(args) < 3 or len(args) % 2 == 0:
            raise Unsupported(f"ZADD with {args[1:]}")
        scores = [(args[at + 1], _score(args[at])) for at in range(1, len(args), 2)]
        found = self._zset(key)
        if found is None:
            found = self.data[key] = ZSet()
        return b"v", sum([found.put(member, score) for member, score in scores])

    def _zrem(self, args: Words) -> Answer:
        found = self._zset(args[0])
        if found is None:
            return b"v", 0
        gone = sum([found.remove(member) for member in args[1:]])
        if not found.scores:
            self.drop(args[0])
        return b"v", gone

    def _zcard(self, args: Words) -> Answer:
        found = self._zset(args[0])
        return b"v", 0 if found is None else len(found.scores)

    def _zscore(self, args: Words) -> Answer:
        found = self._zset(args[0])
        score = None if found is None else found.scores.get(args[1])
        return _NONE if score is None else (b"v", _score_text(score))

    def _zrank(self, args: Words) -> Answer:
        found = self._zset(args[0])
        if found is None or args[1] not in found.scores:
            return _NONE
        return b"v", found.order().index(args[1])

    def _zrange(self, args: Words) -> Answer:
        options = [word.upper() for word in args[3:]]
        if set(options) - {b"WITHSCORES", b"REV"}:
            raise Unsupported(f"ZRANGE with {options}")
        start, stop = _integer(args[1]), _integer(args[2])
        found = self._zset(args[0])
        if found is None:
            return (b"a",)
        order = found.order() if b"REV" not in options else found.order()[::-1]
        start = max(0, start + len(order)) if start < 0 else start
        stop = stop + len(order) if stop < 0 else stop
        members = order[start : stop + 1] if stop >= start else []
        if b"WITHSCORES" not in options:
            return (b"a", *members)
        return (b"a", *[word for member in members for word in (member, _score_text(found.scores[member]))])

    def _between(self, args: Words) -> tuple[ZSet | None, list[bytes]]:
        """The members whose scores lie in a range."""
        least, past = _bound(args[1])
        most, short = _bound(args[2])
        found = self._zset(args[0])
        if found is None:
            return None, []
        scores = found.scores
        members = [
            member
            for member in found.order()
            if (scores[member] > least if past else scores[member] >= least)
            and (scores[member] < most if short else scores[member] <= most)
        ]
        return found, members

    def _zcount(self, args: Words) -> Answer:
        return b"v", len(self._between(args)[1])

    def _zrangebyscore(self, args: Words) -> Answer:
        found, members = self._between(args)
        options = [word.upper() for word in args[3:]]
        scored = options[:1] == [b"WITHSCORES"]
        if scored:
            options = options[1:]
        if options[:1] == [b"LIMIT"] and len(options) == 3:
            start, count = _integer(options[1]), _integer(options[2])
            members = members[start : start + count] if count >= 0 else members[start:]
        elif options:
            raise Unsupported(f"ZRANGEBYSCORE with {options}")
        if not scored or found is None:
            return (b"a", *members)
        return (b"a", *[word for member in members for word in (member, _score_text(found.scores[member]))])

    def _zremrangebyscore(self, args: Words) -> Answer:
        members = self._between(args)[1]
        return self._zrem((args[0], *members)) if members else (b"v", 0)


def _score(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        raise Refused("ERR value is not a valid float") from None


def _bound(text: bytes) -> tuple[float, bool]:
    """An end of a range of scores, and whether it lies outside itself."""
    outside = text.startswith(b"(")
    return _score(text[1:] if outside else text), outside


COMMANDS: dict[bytes, tuple[Callable[[Store, Words], Answer], bool, bool]] = {
    b"DEL": (Store._del, True, False),
    b"EXISTS": (Store._exists, False, False),
    b"GET": (Store._get, False, False),
    b"HDEL": (Store._hdel, True, False),
    b"HEXISTS": (Store._hexists, False, False),
    b"HGET": (Store._hget, False, False),
    b"HGETALL": (Store._hgetall, False, False),
    b"HINCRBY": (Store._hincrby, True, True),
    b"HKEYS": (Store._hkeys, False, False),
    b"HLEN": (Store._hlen, False, False),
    b"HMGET": (Store._hmget, False, False),
    b"HRANDFIELD": (Store._hrandfield, False, False),
    b"HSET": (Store._hset, True, True),
    b"HSETNX": (Store._hsetnx, True, True),
    b"HVALS": (Store._hvals, False, False),
    b"INFO": (Store._info, False, False),
    b"PEXPIREAT": (Store._pexpireat, True, False),
    b"PEXPIRETIME": (Store._pexpiretime, False, False),
    b"PTTL": (Store._pttl, False, False),
    b"PUBLISH": (Store._publish, False, False),
    b"SET": (Store._set, True, True),
    b"TIME": (Store._time, False, False),
    b"TYPE": (Store._type, False, False),
    b"ZADD": (Store._zadd, True, True),
    b"ZCARD": (Store._zcard, False, False),
    b"ZCOUNT": (Store._zcount, False, False),
    b"ZRANGE": (Store._zrange, False, False),
    b"ZRANGEBYSCORE": (Store._zrangebyscore, False, False),
    b"ZRANK": (Store._zrank, False, False),
    b"ZREM": (Store._zrem, True, False),
    b"ZREMRANGEBYSCORE": (Store._zremrangebyscore, True, False),
    b"ZSCORE": (Store._zscore, False, False),
}
"""Each command: how it runs, whether it may write, and whether a server without memory refuses it."""
