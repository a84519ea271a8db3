"""Runs the scripts against a real server, one request at a time, on the server's clock or on one we move."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import redis

from pawlock.core.scripts import load

PACKAGE = "pawlock.primitives.mutex"
NAMES = (
    "acquire",
    "renew",
    "leave",
    "inspect",
)
KEYS = {
    "acquire": ("name", "fence", "queue", "tickets", "dead"),
    "renew": ("name", "fence", "queue", "tickets"),
    "adopt": ("name", "fence", "queue", "tickets", "dead"),
    "leave": ("name", "fence", "queue", "tickets", "dead"),
    "inspect": ("name", "fence", "queue", "tickets"),
    "renew_all": ("name", "fence"),
}
DAY = 86_400_000

# Stands in for `redis.call`: the clock is ours. As on servers whose clock moves within a script, PTTL sees it a
# drift earlier before TIME was called, a drift later afterwards. Declared keys that are past their expiry on our
# clock go first, as the server would see to.
_OUR_CLOCK = """
local at = tonumber(redis.call('GET', '_now_us'))
local drift = tonumber(redis.call('GET', '_drift_us'))  -- before TIME; negative after
for _, key in ipairs(KEYS) do
  local expiry = redis.call('PEXPIRETIME', key)
  if expiry >= 0 and expiry < math.floor(at / 1000) then redis.call('DEL', key) end
end
local function call(command, key, ...)
  if command == 'TIME' then
    drift = -drift
    local seconds = math.floor(at / 1000000)
    return {string.format('%.0f', seconds), string.format('%.0f', at - seconds * 1000000)}
  end
  if command == 'PTTL' then
    local expiry = redis.call('PEXPIRETIME', key)
    if expiry < 0 then return expiry end
    return math.max(0, expiry - math.floor((at - drift) / 1000))
  end
  return redis.call(command, key, ...)
end
"""
_PUBLISH = "redis.pcall('PUBLISH', "
_MAIL = "redis.call('RPUSH', '_mail', "

# Every declared key: type, expiry, content.
_DUMP = """
local function expiry_of(key)
  local expiry = redis.pcall('PEXPIRETIME', key)
  if type(expiry) == 'number' then return expiry end  -- else Redis 6.2
  local left, time = redis.call('PTTL', key), redis.call('TIME')
  return left < 0 and left or time[1] * 1000 + math.floor(time[2] / 1000) + left
end
local all = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local content = ''
  if kind == 'string' then content = {redis.call('GET', key)}
  elseif kind == 'hash' then content = redis.call('HGETALL', key)
  elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then content = redis.call('LRANGE', key, 0, -1) end
  all[i] = {kind, kind == 'none' and -2 or expiry_of(key), content}
end
return all
"""

Reply = tuple[Any, ...]
Edit = Callable[[str, str], str]


def token(text: str) -> str:
    """A server token whose public part is `host:1/<text>`."""
    secret = re.sub("[^0-9A-Za-z]", "x", text)
    return f"{secret:x<24}@host:1/{text}"


class Rig:
    """The scripts of one package on one server."""

    package = PACKAGE
    keys: Mapping[str, tuple[str, ...]] = KEYS

    def __init__(self, path: str, *, own_clock: bool = True, edit: Edit | None = None) -> None:
        # Any: the client's own annotations cover its replies only in part.
        self.redis: Any = redis.Redis(unix_socket_path=path, decode_responses=True)
        self.own_clock = own_clock
        self.now_us = time.time_ns() // 1000 + 3_600_000_000
        self.drift_us = 0
        self.requests = 0
        self.fence_ttl = DAY
        self.sha: dict[str, str] = {}
        self.dump_sha = self.redis.script_load(_DUMP)
        for name in self.keys:
            source = load(self.package, name).source.decode()
            if edit:
                source = edit(name, source)
            if own_clock:
                assert source.count("local call = redis.call\n") == 1
                source = source.replace("local call = redis.call\n", _OUR_CLOCK).replace(_PUBLISH, _MAIL)
            self.sha[name] = self.redis.script_load(source)

    def close(self) -> None:
        self.redis.close()

    def can_move_the_clock(self) -> bool:
        """Whether the server tells expiries in absolute time, which a clock of ours needs (Redis 7.0)."""
        try:
            return bool(self.redis.pexpiretime("none") == -2)
        except redis.ResponseError:
            return False

    @property
    def now(self) -> int:
        """Server time in ms."""
        if self.own_clock:
            return self.now_us // 1000
        seconds, us = self.redis.time()
        return int(seconds * 1000 + us // 1000)

    def advance(self, ms: float) -> None:
        """Let time pass."""
        if self.own_clock:
            self.now_us += int(ms * 1000)
        else:
            time.sleep(ms / 1000)

    def key(self, part: str, name: str = "n", **tokens: str) -> str:
        """The key of a name that the header of a script calls `part`."""
        if part == "name":
            return name
        if part.startswith("dead"):
            return f"{{{name}}}:1:dead:{tokens[part]}"
        return f"{{{name}}}:fence" if part == "fence" else f"{{{name}}}:1:{part}"

    def run(self, script: str, args: tuple[Any, ...], name: str = "n", **tokens: str) -> Reply:
        """Run a script; the reply without the request id, which was checked."""
        return self.run_on(script, [self.key(part, name, **tokens) for part in self.keys[script]], args)

    def run_on(self, script: str, keys: list[str], args: tuple[Any, ...]) -> Reply:
        """Run a script on keys, as `run` does."""
        self.requests += 1
        rid = f"r{self.requests}"
        pipe = self.redis.pipeline(transaction=False)
        if self.own_clock:
            pipe.mset({"_now_us": self.now_us, "_drift_us": self.drift_us})
        pipe.evalsha(self.sha[script], len(keys), *keys, *args, rid)
        reply = pipe.execute()[-1]
        assert reply[1] == rid, f"{script} answered {reply} to request {rid}"
        return (reply[0], *reply[2:])

    def acquire(
        self, tok: str, ttl: int = 1000, ticket_ttl: int = 300, *, mode: int = 1, block: int = 1,
        channel: str = "ch", room: int = 100, name: str = "n",
    ) -> Reply:  # fmt: skip
        return self.run(
            "acquire", (tok, ttl, ticket_ttl, mode, block, channel, room, self.fence_ttl), name, dead=tok
        )

    def renew(self, tok: str, ttl: int = 1000, ticket_ttl: int = 300, channel: str = "") -> Reply:
        return self.run("renew", (tok, ttl, ticket_ttl, channel, self.fence_ttl))

    def leave(self, tok: str, *, tomb: int = 0, close: int = 0) -> Reply:
        return self.run("leave", (tok, tomb, close, self.fence_ttl), dead=tok)

    def inspect(self, limit: int = 100) -> Reply:
        return self.run("inspect", (limit,))

    def mail(self) -> list[tuple[str, list[str]]]:
        """Messages published since the last look: channel and words. Only on our own clock."""
        pipe = self.redis.pipeline()
        flat = pipe.lrange("_mail", 0, -1).delete("_mail").execute()[0]
        return [(flat[i], flat[i + 1].split(" ")) for i in range(0, len(flat), 2)]

    def raw(self, keys: list[str] | None = None) -> dict[str, tuple[str, int, Any]]:
        """Keys as they are: type, expiry in ms (-1 none), content. Default: all keys."""
        if keys is None:
            keys = sorted(k for k in self.redis.keys("*") if not k.startswith("_"))
        found = self.redis.evalsha(self.dump_sha, len(keys), *keys)
        return {
            key: (kind, expiry, content) for key, (kind, expiry, content) in zip(keys, found, strict=True)
        }

    def value(self, name: str = "n") -> str | None:
        """The value of the name on our clock."""
        kind, expiry, content = self.raw([name])[name]
        return content[0] if kind == "string" and expiry >= self.now else None

    def queue(self) -> list[str]:
        found: list[str] = self.redis.zrange(self.key("queue"), 0, -1)
        return found

    def tickets(self) -> Mapping[str, str]:
        found: dict[str, str] = self.redis.hgetall(self.key("tickets"))
        return found
