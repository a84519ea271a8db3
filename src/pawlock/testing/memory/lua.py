"""pawlock's own .lua files, run as a server would run them, on keys in memory.

The commands are Lua as well, in ``server/``: a script that asked Python for each of them took three times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

from pawlock.core.runtime import Reply
from pawlock.testing.memory.store import Refused, Store, Unsupported, Value, ZSet

__all__ = ["Interpreter"]

_PARTS = ("keys", "hashes", "sorted_sets", "run")


def _engine(*, fast: bool) -> Any:
    if fast:
        with suppress(ImportError):
            return import_module("lupa.luajit21")
    return import_module("lupa.lua51")


class _Host:
    """What the commands ask of the store whose script runs."""

    def __init__(self) -> None:
        self.store: Store | None = None

    def ask(self, what: bytes, one: Any, two: Any = None) -> Any:
        """PUBLISH and INFO; and a sample of so many of the first numbers."""
        store = self.store
        if store is None:
            raise AssertionError("a command outside of scripts and commands")
        if what == b"PUBLISH":
            return store.published(one, two)
        if what == b"INFO":
            return store.info(one)
        return b" ".join(b"%d" % at for at in store.random.sample(range(int(one)), int(two)))


class Interpreter:
    """One Lua state for many stores; each script is compiled once, and runs on the store that is given.

    Args:
        fast: Whether to run them by LuaJIT, where there is one: the same language, and twice as fast. Default False:
            by the very Lua that Redis embeds.

    Attributes:
        commands: The commands that scripts may use.
    """

    def __init__(self, *, fast: bool = False) -> None:
        engine = _engine(fast=fast)
        lua: Any = engine.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._table: Any = engine.lua_type
        self._compiled: dict[bytes, Any] = {}
        self._host = _Host()
        folder = files("pawlock.testing.memory").joinpath("server")
        text = "\n".join(folder.joinpath(f"{part}.lua").read_text(encoding="ascii") for part in _PARTS)
        self._compile, self._run, self._command, self._open, self._put, known = lua.execute(
            text.encode(), self._host.ask
        )
        self.commands: frozenset[bytes] = frozenset(known.split())

    @staticmethod
    @cache
    def shared() -> Interpreter:
        """The interpreter of this process."""
        return Interpreter(fast=True)

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
        return self.run_words(source, store, len(keys), (*keys, *args))

    def run_words(self, source: bytes, store: Store, numkeys: int, words: Sequence[bytes]) -> Reply | Any:
        """Run a script with its keys and arguments in one; see ``run``."""
        script = self._compiled.get(source)
        if script is None:
            script = self._compiled[source] = self._compile(source, b"@user_script")
        home = self._home(store)
        self._host.store = store
        try:
            found = self._run(
                script, numkeys, home, store.now_us, store.drift_us, store.replica, store.no_memory,
                store.moving, *words,
            )  # fmt: skip
        finally:
            self._host.store = None
        return self._done(store, found)

    def command(self, store: Store, *words: bytes) -> Any:
        """Run one command outside of scripts; see ``run``."""
        home = self._home(store)
        self._host.store = store
        try:
            found = self._command(
                home, store.now_us, store.drift_us, store.replica, store.no_memory, store.moving, *words
            )
        finally:
            self._host.store = None
        return self._done(store, found)

    def _home(self, store: Store) -> Any:
        """The keys as Lua has them."""
        home = store.home
        if home is None:
            home = store.home = self._open()
        if store.stale:
            self._catch_up(store)
        return home

    def _done(self, store: Store, found: tuple[Any, ...]) -> Any:
        """Have Python know what Lua did to the keys, and give the reply; see ``answered`` in ``run.lua``."""
        at = 2 + found[1]
        store.changes += found[0]
        if at > 2:
            store.follow(found[2:at])
        kind, values = found[at], found[at + 1 :]
        if kind == b"a":
            if _PLAIN.issuperset(map(type, values)):
                return list(values)
            return [one if type(one) in _PLAIN else self._plain(one) for one in values]
        if kind == b"e":
            raise Refused(values[0].decode(errors="replace"))
        if kind == b"x":
            raise Unsupported(values[0].decode(errors="replace"))
        return self._plain(values[0]) if values else None

    def _catch_up(self, store: Store) -> None:
        """Have Lua know what somebody else changed."""
        stale, store.stale = store.stale, set()
        for key in stale:
            value = store.data.get(key)
            self._put(store.home, key, *_parts(value, store.expires.get(key)))

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


def _parts(value: Value | None, expiry: int | None) -> tuple[Any, ...]:
    """A key's kind, when it ends, and what it is made of."""
    if value is None:
        return (None,)
    if isinstance(value, bytes):
        return b"string", expiry, value
    if isinstance(value, dict):
        return b"hash", expiry, *[word for pair in value.items() for word in pair]
    if isinstance(value, ZSet):
        return b"zset", expiry, *[word for member, score in value.scores.items() for word in (score, member)]
    return b"list", expiry, *value


_PLAIN = frozenset({bytes, int})
