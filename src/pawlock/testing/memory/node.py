"""The server: pawlock's scripts on keys in memory."""

from __future__ import annotations

from random import Random

from pawlock.core.protocol.runtime import Call, Reply
from pawlock.errors import ConfigurationError
from pawlock.testing._clock import Clock
from pawlock.testing.in_process.node import Node, Outcome
from pawlock.testing.memory.lua import Interpreter
from pawlock.testing.memory.store import Refused, Store
from pawlock.transport.wire import read_push, refusal_of

__all__ = ["MemoryNode"]

_INFO = {
    b"server": b"redis_version:7.0.0\r\nredis_mode:standalone\r\nuptime_in_seconds:1000000",
    b"replication": b"role:master\r\nconnected_slaves:0",
    b"memory": b"maxmemory:0\r\nmaxmemory_policy:noeviction",
    b"persistence": b"loading:0\r\naof_enabled:1",
}


class MemoryNode(Node):
    """One server that runs scripts. See ``Node``.

    Args:
        clock: What its wall clock goes by.
        shown: Its address.

    Raises:
        ConfigurationError: lupa is not installed.
    """

    def __init__(self, clock: Clock, shown: str) -> None:
        try:
            self._interpreter = Interpreter()
        except ImportError as error:
            raise ConfigurationError(
                f"a server in memory runs pawlock's own scripts by lupa, and {error}: pip install 'pawlock[testing]'"
            ) from error
        super().__init__(clock, shown)
        self._store = Store(Random(1), self._publish, _info)  # noqa: S311 - a sample of a hash, in a test

    def _answer(self, request: Call, rid: int) -> Outcome:
        words = [*request.words(), b"%d" % rid]
        count = request.script.numkeys
        self._store.begin(self._clock.server_us())
        try:
            reply: Reply = self._interpreter.run(
                request.script.source, self._store, words[:count], words[count:]
            )
        except Refused as refused:
            return refusal_of(str(refused.args[0]))
        return request.answer(reply)

    def words(self, request: Call) -> tuple[str, ...]:
        """See ``Node``."""
        return (request.script.name, *(word.decode() for word in request.words()))

    def _forget(self) -> None:
        self._store.flush()

    def _publish(self, channel: bytes, text: bytes) -> int:
        found = read_push((b"message", b"", text))
        if found is None:
            raise AssertionError(f"a script published what no client can read: {text!r}")
        return int(self._wake(channel.decode(), *found))


def _info(section: bytes) -> bytes:
    return _INFO.get(section, b"")
