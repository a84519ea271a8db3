"""A server: keys, scripts, a wall clock, subscribers, and the states that a server can be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from pawl.core.protocol.runtime import Call, Reply
from pawl.testing.sim.lua import Interpreter
from pawl.testing.sim.store import Refused, Store, Unsupported

if TYPE_CHECKING:
    from pawl.testing.sim.network import Link
    from pawl.testing.sim.pair import Pair
    from pawl.testing.sim.world import World

__all__ = ["EPOCH_US", "Judge", "Keys", "Node"]

EPOCH_US = 1_790_000_000_000_000
"""What wall clocks read at the beginning, in µs."""

Keys = tuple[dict[bytes, Any], dict[bytes, int]]


class Judge(Protocol):
    """Is told of each script that ran."""

    def __call__(self, call: Call, words: list[bytes], reply: Reply, /, *, changed: bool) -> object:
        """Look at it: the call, its words, the reply, and whether it wrote."""
        ...


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
        changed: Whether the last script may have written.
        messages: What the present script published: channel and text.
        moving_us: How far the clock may move within a script; 0 on servers that freeze it.
        lost_memory_at: True time of the last fault that took keys away, moved the clock, or both; below 0: never.
        restarted_at: True time of the last start with other keys than it had; below 0: never.
        started_us: What its wall clock read when it started.
        pair: The master and replica that it is one of, or None.
        wrote: Told of the keys that a script may have changed; None: of all keys.
        far: By how many seconds a message takes longer, one way, to or from it; each by a chance of its own.
        breaks: The chance that a connection breaks in place of a reply, or of the request.
    """

    def __init__(self, world: World, name: str, *, rate: float = 1.0, moving_us: int = 0) -> None:
        self.world = world
        self.name: str = name
        self.rate: float = rate
        self.shift_us: float = 0.0
        self.moving_us: int = moving_us
        self.store: Store = Store(world.random, self._publish, self._info)
        self.scripts: set[str] = set()
        self.up: bool = True
        self.loading: bool = False
        self.stalled_until: float = 0.0
        self.run: int = 0
        self.lost_memory_at: float = -1.0
        self.restarted_at: float = -1e9
        self.started_us: int = EPOCH_US - 1_000_000_000_000
        self.links: dict[str, Link] = {}
        self.pair: Pair | None = None
        self.wrote: Callable[[Node, tuple[bytes, ...] | None], object] = _deaf
        self.judge: Judge = _no_judge
        self.refused: Callable[[str, str], object] = _deaf
        self.changed: bool = False
        self.far: float = 0.0
        self.breaks: float = 0.0
        self.messages: list[tuple[bytes, bytes]] = []
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

    def start(self, kept: Keys | None, *, noticed: bool = False) -> None:
        """Start again.

        Args:
            kept: The keys that survived, or None for what was there; an empty pair for nothing.
            noticed: Whether clients notice that it restarted, and do not rely on it for a while.
        """
        if kept is not None:
            self.store.restore(kept)
            self.restarted_at = self.world.now
            if not noticed:
                self.lost_memory_at = self.world.now
        self.started_us = self.us_at(self.world.now)
        self.scripts.clear()
        self.up = True
        if self.pair is None:
            self.store.replica = False
        self.wrote(self, None)

    def forget(self, key: bytes) -> None:
        """Evict one key."""
        if self.store.drop(key):
            self.lost_memory_at = self.world.now
            self.wrote(self, (key,))

    def flush(self) -> None:
        """FLUSHALL."""
        self.store.flush()
        self.lost_memory_at = self.world.now
        self.wrote(self, None)

    def _info(self, _section: bytes) -> bytes:
        """What INFO tells of it: who it is, and since when by its own wall clock."""
        uptime = max(0, (self.us_at(self.world.now) - self.started_us) // 1_000_000)
        return f"run_id:{self.name}r{self.run}\r\nuptime_in_seconds:{uptime}\r\n".encode()

    # Work -------------------------------------------------------------------------------------------------------

    def _publish(self, channel: bytes, text: bytes) -> int:
        self.messages.append((channel, text))
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
        if script.sha not in self.scripts:
            if not by_text:
                return "NOSCRIPT No matching script. Please use EVAL."
            self.scripts.add(script.sha)
        words = call.body.split(b"\r\n")[1::2]
        words.append(b"%d" % rid)
        store, world = self.store, self.world
        source = script.source if self.edit is None else self.edit(script.name, script.source)
        if self.messages:
            self.messages.clear()
        drift_us = int(world.random.random() * self.moving_us) if self.moving_us else 0
        store.begin(EPOCH_US + int(world.now * self.rate * 1e6 + self.shift_us), drift_us)
        changes = store.changes
        try:
            reply: Reply = self._interpreter.run_words(source, store, script.numkeys, words)
        except Refused as refused:
            text = str(refused.args[0])
            world.note(self.name, who, script.name, text)
            self.refused(script.name, text)
            if store.changes != changes:
                world.fail(f"{self.name} stopped {script.name} after its first write: {text}")
            return text
        except Unsupported as error:
            world.fail(f"{self.name} ran {script.name}: the node in memory does not have {error}")
            raise
        world.trace.append((world.now, self.name, who, script.name, reply))
        changed = self.changed = store.changes != changes
        if changed and self.wrote is not _deaf:
            self.wrote(self, tuple(words[: script.numkeys]))
        self.judge(call, words, reply, changed=changed)
        return reply


def _no_judge(*_: object, changed: bool) -> None:
    """Without a judge everything is fine."""


def _deaf(*_: object) -> None:
    """Nobody wants to know."""
