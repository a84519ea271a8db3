"""pawl's own .lua files, run as a server would run them, on a store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pawl.core.runtime import Reply
from pawl.testing.sim.store import Refused, Store

__all__ = ["Interpreter"]

# Redis' rules for what a script sees and returns: globals are closed, an array of a reply ends at its first nil.
_HOST = b"""
local ask
local NIL = {}
local function answered(kind, first, ...)
  if kind == 'v' then
    return first
  elseif kind == 'a' then
    return {first, ...}
  elseif kind == 's' then
    return {ok = first}
  elseif kind == 'e' then
    error({err = first}, 0)
  end
  error(first, 0)
end
local function caught(kind, first, ...)
  if kind == 'e' then
    return {err = first}
  end
  return answered(kind, first, ...)
end
local redis = {
  call = function(...) return answered(ask(...)) end,
  pcall = function(...) return caught(ask(...)) end,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
}
local env = {
  redis = redis, math = math, string = string, table = table, tonumber = tonumber, tostring = tostring,
  type = type, ipairs = ipairs, pairs = pairs, unpack = unpack, next = next, select = select, pcall = pcall,
  error = error, KEYS = NIL, ARGV = NIL,
}
setmetatable(env, {
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. name, 0) end,
  __newindex = function(_, name) error('Script attempted to set the global variable ' .. name, 0) end,
})
local function converted(ok, reply)
  if not ok then
    if type(reply) == 'table' and reply.err then
      return 'e', reply.err
    end
    return 'e', 'ERR ' .. tostring(reply)
  end
  if type(reply) ~= 'table' then
    return 'v', reply
  elseif reply.err then
    return 'e', reply.err
  elseif reply.ok then
    return 's', reply.ok
  end
  local count = 0
  while reply[count + 1] ~= nil do
    count = count + 1
  end
  return 'a', unpack(reply, 1, count)
end
local function compile(text, name)
  local script = assert(loadstring(text, name))
  return setfenv(script, env)
end
local function run(script, asked, numkeys, ...)
  ask = asked
  local words = {...}
  local keys, args = {}, {}
  for i = 1, numkeys do
    keys[i] = words[i]
  end
  for i = numkeys + 1, #words do
    args[i - numkeys] = words[i]
  end
  env.KEYS, env.ARGV = keys, args
  return converted(pcall(script))
end
return compile, run
"""


class Interpreter:
    """One Lua state for the whole process; each script is compiled once, and runs on the store that is given."""

    def __init__(self) -> None:
        # The very Lua that Redis embeds.
        from lupa import lua51

        make: Any = lua51.LuaRuntime
        lua: Any = make(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._table: Any = lua51.lua_type
        self._compiled: dict[bytes, Any] = {}
        self._compile, self._run = lua.execute(_HOST)

    @staticmethod
    @cache
    def shared() -> Interpreter:
        """The interpreter of this process."""
        return Interpreter()

    def run(self, source: bytes, store: Store, keys: Sequence[bytes], args: Sequence[bytes]) -> Reply | Any:
        """Run a script.

        Args:
            source: Its whole text.
            store: What its commands work on.
            keys: ``KEYS``.
            args: ``ARGV``.

        Returns:
            The reply as a client gets it.

        Raises:
            Refused: The script ended with an error reply.
            Unsupported: It did what the node in memory cannot do.
        """
        script = self._compiled.get(source)
        if script is None:
            script = self._compiled[source] = self._compile(source, b"@user_script")
        store.failure = None
        kind, *found = self._run(script, store.call, len(keys), *keys, *args)
        if store.failure is not None:
            raise store.failure
        if kind == b"e":
            raise Refused(found[0].decode(errors="replace"))
        if kind == b"a":
            return [one if type(one) in _PLAIN else self._plain(one) for one in found]
        return self._plain(found[0]) if found else None

    def _plain(self, value: Any) -> Any:
        """A Lua value as Redis sends it: numbers lose their fraction, true is 1, false is nil."""
        if value is None or value is False:
            return None
        if isinstance(value, float):
            return int(value)
        if value is True:
            return 1
        if self._table(value) == "table":
            found: list[Any] = []
            while (one := value[len(found) + 1]) is not None:
                found.append(self._plain(one))
            return found
        return value


_PLAIN = (bytes, int)
