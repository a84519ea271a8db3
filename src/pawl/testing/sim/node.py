"""A server: keys, scripts, a wall clock, subscribers, and the states that a server can be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pawl.core.runtime import Call, Reply
from pawl.testing.sim.lua import Interpreter
from pawl.testing.sim.store import Refused, Store, Unsupported

if TYPE_CHECKING:
    from pawl.testing.sim.network import Link
    from pawl.testing.sim.world import World

__all__ = ["EPOCH_US", "Node"]

EPOCH_US = 1_790_000_000_000_000
"""What wall clocks read at the beginning, in µs."""

Judge = Callable[["Node", str, Call, list[bytes], Reply], object]
"""Is told of each script that ran: node, sender, call, its words, reply."""


class Node:
    """One server.

    Attributes:
        store: Its keys.
        scripts: Hashes of the scripts that it knows.
        up: False between a crash and the restart.
        stalled_until: True time until which it answers nothing, as in a long command or SIGSTOP.
        run: Raised at each restart: connections of an earlier run are gone.
        loading: True while it answers LOADING.
        judge: Looks at each script that ran.
        refused: Is told of each that ended with an error: its name and the error.
        messages: What the present script published.
        moving_us: How far the clock may move within a script; 0 on servers that freeze it.
        lost_memory_at: True time of the last fault that took keys away, moved the clock, or both.
    """

    def __init__(self, world: World, name: str, *, rate: float = 1.0, moving_us: int = 0) -> None:
        self.world = world
        self.name: str = name
        self.rate: float = rate
        self.shift_us: float = 0.0
        self.moving_us: int = moving_us
        self.store: Store = Store(world.random, self._publish)
        self.scripts: set[str] = set()
        self.up: bool = True
        self.loading: bool = False
        self.stalled_until: float = 0.0
        self.run: int = 0
        self.lost_memory_at: float = -1.0
        self.links: dict[str, Link] = {}
        self.judge: Judge = _no_judge
        self.refused: Callable[[str, str], object] = _no_judge
        self.messages: list[bytes] = []
        self.edit: Callable[[str, bytes], bytes] | None = None
        self._interpreter = Interpreter.shared()

    # Clock ------------------------------------------------------------------------------------------------------

    def us_at(self, true: float) -> int:
        """What its wall clock reads at a true time, if nobody sets it until then."""
        return EPOCH_US + int(true * self.rate * 1e6 + self.shift_us)

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock forward or, below zero, back."""
        self.shift_us += seconds * 1e6
        self.lost_memory_at = self.world.now

    # States -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """End at once: connections break, nothing is answered."""
        self.up = False
        self.run += 1
        self.links.clear()

    def start(self, kept: tuple[dict[bytes, Any], dict[bytes, int]] | None) -> None:
        """Start again.

        Args:
            kept: The keys that survived, or None for what was there; an empty pair for nothing.
        """
        if kept is not None:
            self.store.restore(kept)
            self.lost_memory_at = self.world.now
        self.scripts.clear()
        self.up = True
        self.store.replica = False

    def forget(self, key: bytes) -> None:
        """Evict one key."""
        if self.store.drop(key):
            self.lost_memory_at = self.world.now

    def flush(self) -> None:
        """FLUSHALL."""
        self.store.flush()
        self.lost_memory_at = self.world.now

    # Work -------------------------------------------------------------------------------------------------------

    def _publish(self, channel: bytes, text: bytes) -> int:
        self.messages.append(text)
        link = self.links.get(channel.decode())
        if link is None:
            return 0
        link.push(text)
        return 1

    def execute(self, who: str, call: Call, rid: int, *, by_text: bool) -> Reply | str:
        """Run one request.

        Args:
            who: Who sent it, for the trace.
            call: The script and its words.
            rid: The request id.
            by_text: True for EVAL, which a server runs whether it knows the script or not.

        Returns:
            The script's reply, or the text of an error reply.
        """
        if self.loading:
            return "LOADING Redis is loading the dataset in memory"
        script = call.script
        if not by_text and script.sha not in self.scripts:
            return "NOSCRIPT No matching script. Please use EVAL."
        self.scripts.add(script.sha)
        words = call.body.split(b"\r\n")[1::2]
        words.append(b"%d" % rid)
        store = self.store
        source = script.source if self.edit is None else self.edit(script.name, script.source)
        keys = words[: script.numkeys]
        self.messages.clear()
        drift_us = int(self.world.random.random() * self.moving_us) if self.moving_us else 0
        store.begin(self.us_at(self.world.now), tuple(keys), drift_us)
        try:
            reply: Reply = self._interpreter.run(source, store, keys, words[script.numkeys :])
        except Refused as refused:
            text = str(refused.args[0])
            self.world.note(self.name, who, script.name, text)
            self.refused(script.name, text)
            return text
        except Unsupported as error:
            self.world.fail(f"{self.name} ran {script.name}: the node in memory does not have {error}")
            raise
        finally:
            store.declared = None
        self.world.note(self.name, who, script.name, reply)
        self.judge(self, who, call, words, reply)
        return reply


def _no_judge(*_: object) -> None:
    """Without a judge everything is fine."""
