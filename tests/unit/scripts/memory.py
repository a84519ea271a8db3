"""Runs any script on the server in memory, on a clock that stands still: for exact replies and exact expiries."""

from __future__ import annotations

from random import Random
from typing import Any

from pawlock.core.scripts import load
from pawlock.testing.memory.lua import Interpreter
from pawlock.testing.memory.store import Store, ZSet
from tests.support.scripts import package_of

NOW_MS = 4_000_000_000_000
NOW_US = NOW_MS * 1000
HOUR_US = 3_600_000_000
DAY = 86_400_000

State = dict[str, tuple[int, Any]]


class Node:
    """The keys of one server, and the scripts of one package."""

    def __init__(self, package: str) -> None:
        self.package = package_of(package)
        self.mail: list[tuple[str, str]] = []
        self.store = Store(Random(1), self._publish)
        self.store.begin(NOW_US)

    def _publish(self, channel: bytes, text: bytes) -> int:
        self.mail.append((channel.decode(), text.decode()))
        return 1

    def later(self, ms: int, us: int = 0) -> None:
        """Let time pass: keys that are over go."""
        self.store.begin(self.store.now_us + ms * 1000 + us)
        for key, expiry in list(self.store.expires.items()):
            if expiry < self.store.now_ms:
                self.store.drop(key)

    def run(self, script: str, keys: list[str], *args: object) -> list[Any]:
        """Run a script; the reply without the request id, which is checked."""
        source = load(self.package, script).source
        words = [str(arg).encode() for arg in (*args, "r7")]
        reply = _text(Interpreter.shared().run(source, self.store, [key.encode() for key in keys], words))
        assert reply[1] == "r7"
        return [reply[0], *reply[2:]]

    def command(self, *words: object) -> Any:
        """Run a command."""
        return _text(Interpreter.shared().command(self.store, *(str(word).encode() for word in words)))

    def state(self) -> State:
        """Each key: in how many ms it ends (-1: never), and what it holds."""
        ends = self.store.expires
        return {
            key.decode(): (ends[key] - self.store.now_ms if key in ends else -1, _plain(value))
            for key, value in self.store.data.items()
        }


def _plain(value: Any) -> Any:
    if isinstance(value, ZSet):
        return {member.decode(): int(value.scores[member]) for member in value.order()}
    if isinstance(value, dict):
        return {field.decode(): text.decode() for field, text in value.items()}
    return [one.decode() for one in value] if isinstance(value, list) else value.decode()


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_text(one) for one in value] if isinstance(value, list) else value
