"""A server: keys, scripts, a wall clock, subscribers, and the states that a server can be in; a master and its replica.

What the one writes reaches the other a little later, and in order. What a failover loses is what was still under way.
The old master may go on for a while beside the new one, for those who are connected to it; then it is told, breaks all
connections, and starts over as the other's replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from pawlock.core.runtime import Call, Reply
from pawlock.testing.memory.lua import Interpreter
from pawlock.testing.memory.store import Refused, Store, Unsupported

if TYPE_CHECKING:
    from tests.simulator.world import Process, World

__all__ = ["EPOCH_US", "Judge", "Keys", "Listener", "Network", "Node", "Pair"]

EPOCH_US = 1_790_000_000_000_000
"""What wall clocks read at the beginning, in µs."""

Keys = tuple[dict[bytes, Any], dict[bytes, int]]


class Judge(Protocol):
    """Called with each script that ran."""

    def __call__(self, call: Call, words: list[bytes], reply: Reply, /, *, changed: bool) -> object:
        """Look at it: the call, its words, the reply, and whether it wrote."""
        ...


Part = dict[bytes, tuple[Any, int | None]]


class Listener(Protocol):
    """A connection that hears what is published; see ``network.Link``."""

    process: Process
    run: int

    def push(self, text: bytes) -> object:
        """Take a message."""
        ...

    def _reset(self, text: str) -> None: ...

    def _forgotten(self, _: object) -> None: ...


class Network(Protocol):
    """What the stream to a replica runs through."""

    def delay(self) -> float:
        """How long one message takes."""
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
        refused: Called with each that ended with an error: its name and the error.
        changed: Whether the last script may have written.
        messages: What the present script published: channel and text.
        moving_us: How far the clock may move within a script; 0 on servers that freeze it.
        lost_memory_at: True time of the last fault that took keys away, moved the clock, or both; below 0: never.
        restarted_at: True time of the last start with other keys than it had; below 0: never.
        started_us: What its wall clock read when it started.
        pair: The master and replica that it is one of, or None.
        wrote: Called with the keys that a script may have changed; None: of all keys.
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
        self.links: dict[str, Listener] = {}
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


class Pair:
    """The stream from a master to its replica.

    Args:
        world: The run.
        nodes: Both.

    Attributes:
        network: What the stream runs through; set before the first write.
        master: The one that clients are sent to.
        replica: The other one.
        frozen_until: Nothing gets through before this.
        follows: Whether the replica follows; a former master does not, until it is told.
        whole: Whether the replica ever had all that this master had: one that starts over has nothing until that is there.
        promoted: Called at a failover.
    """

    def __init__(self, world: World, nodes: list[Node]) -> None:
        self.world = world
        master, replica = nodes
        self.master: Node = master
        self.replica: Node = replica
        self.network: Network | None = None
        self.frozen_until: float = 0.0
        self.offset: int = 0
        self.acknowledged: int = 0
        self.promoted: Callable[[Node], object] = lambda _: None
        self.follows: bool = True
        self.whole: bool = True
        self._age = 0
        self._there_at = 0.0
        self._waiting: list[tuple[int, Callable[[int], object]]] = []
        self.replica.store.replica = True
        for node in nodes:
            node.wrote = self._wrote

    def _wrote(self, node: Node, keys: tuple[bytes, ...] | None) -> None:
        """Send what was written to the replica; None: everything."""
        if node is not self.master:
            return
        store = node.store
        self.offset += 1
        if not self.follows:
            return
        part: Part = {
            key: (_copy(store.data.get(key)), store.expires.get(key))
            for key in (keys if keys is not None else {*store.data, *self.replica.store.data})
        }
        self._there_at = max(self._there_at, self.world.now + self._delay(), self.frozen_until)
        self.world.at(self._there_at, self._arrived, (self._age, self.offset, part))

    def _delay(self) -> float:
        return 0.0 if self.network is None else self.network.delay()

    def wrote(self, node: Node) -> None:
        """Something was written that nobody reads."""
        self._wrote(node, ())

    def _arrived(self, item: tuple[int, int, Part]) -> None:
        age, offset, part = item
        if age != self._age:
            return
        # The first that a new master sends is everything, and all comes in order.
        self.whole = True
        store = self.replica.store
        for key, (value, expiry) in part.items():
            if value is None:
                store.drop(key)
            else:
                store.put(key, value, expiry)
        self.world.at(self.world.now + self._delay(), self._acknowledge, (age, offset))

    def _acknowledge(self, item: tuple[int, int]) -> None:
        age, offset = item
        if age == self._age:
            self.acknowledged = max(self.acknowledged, offset)
            for waiting in [one for one in self._waiting if one[0] <= offset]:
                self._waiting.remove(waiting)
                waiting[1](1)

    def wait(self, node: Node, offset: int, seconds: float, answer: Callable[[int], object]) -> None:
        """``WAIT``: answer with how many replicas have a write, as soon as it is enough or the time is up."""
        if node is not self.master:
            # It is a master no more, or was one that has no replica any more.
            self.world.at(self.world.now + seconds, lambda _: answer(0))
        elif self.acknowledged >= offset:
            answer(1)
        else:
            waiting = offset, answer
            self._waiting.append(waiting)

            def over(_: object) -> None:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                    answer(0)

            self.world.at(self.world.now + seconds, over)

    def promote(self, *, arrived: bool) -> Node:
        """Make the replica the master.

        Args:
            arrived: Whether what was under way reached it before.

        Returns:
            The former master, which knows nothing of it yet.
        """
        old, new = self.master, self.replica
        if arrived:
            new.store.restore(old.store.snapshot())
        # What the old one had lost, the new one does not have either.
        new.lost_memory_at = max(new.lost_memory_at, old.lost_memory_at)
        self._age += 1
        self.follows = self.whole = False
        self.offset = self.acknowledged = 0
        self._there_at = self.frozen_until = 0.0
        for _, answer in self._waiting:
            self.world.at(self.world.now + 1.0, lambda _, answer=answer: answer(0))  # type: ignore[misc]
        self._waiting = []
        self.master, self.replica = new, old
        new.store.replica = False
        self.promoted(new)
        return old

    def follow(self, old: Node) -> None:
        """Have the former master start over as the replica."""
        if not old.up:
            forgot_at = old.lost_memory_at
            old.start(_none())
            # Nobody relies on what a replica has: it gets all from its master.
            old.lost_memory_at = forgot_at
        old.store.restore(_none())
        old.store.replica = True
        if old is self.replica:
            self.follows = True
            self._wrote(self.master, None)


def _none() -> Keys:
    return {}, {}


def _copy(value: Any) -> Any:
    return value if value is None or isinstance(value, bytes) else value.copy()
