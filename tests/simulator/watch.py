"""What looks at one server after each script that it ran: whether its keys are still what the protocol says.

What a client makes of it is the oracle's affair; this knows nothing of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache
from typing import TYPE_CHECKING

from pawlock.core.runtime import Call, Reply
from pawlock.core.scripts import load
from tests.simulator.invariants import CLOSED, STRANGER, Snapshot, Step, broken, reads_only
from tests.simulator.masters import Vote, broken_vote, take_vote, vote_step
from tests.simulator.permit_rules import PermitState, broken_permits
from tests.simulator.results import OnceRun, Results
from tests.simulator.snapshots import (
    next_mutex,
    next_permits,
    permit_run,
    take_mutex,
    take_permits,
)
from tests.simulator.steps import once_step, step_of, together_steps, tomb_of, words_of_wake

if TYPE_CHECKING:
    from pawlock.testing.memory.store import Store
    from tests.simulator.node import Node
    from tests.simulator.world import World

__all__ = ["Watch"]

State = Snapshot | PermitState | Vote
Believed = Callable[["Node", str, State, Step], object]

_MUTEX = (
    "acquire",
    "renew",
    "leave",
    "adopt",
    "inspect",
)
_SCRIPTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("mutex", "pawlock.primitives.mutex", _MUTEX),
    ("together", "pawlock.primitives.mutex", ("renew_all",)),
    ("election", "pawlock.primitives.election", ("acquire", "renew", "leave")),
    ("once", "pawlock.primitives.once", ("begin", "renew", "finish", "forget", "look")),
    ("permits", "pawlock.primitives.permits", ("acquire", "renew", "leave", "limit", "inspect")),
    ("vote", "pawlock.redlock", ("grant", "renew", "leave")),
)
_OF_REDISSON = b"redisson_lock_queue"
"""So begins a key of a script that gives back a lock that is shared with Redisson."""
_WAKES = b"redisson_lock__channel"
_NEEDS_NO_MEMORY = frozenset({"renew", "renew_all", "leave"})


@cache
def _families(*, masters: bool) -> dict[str, str]:
    # Several masters are looked at by a script of the mutex, though nobody queues there.
    return {
        load(package, name).sha: family
        for family, package, names in _SCRIPTS
        for name in names
        if (family == "vote") == masters
    }


@cache
def _variants() -> dict[str, str]:
    """The scripts of keys that are shared with other programs."""
    key, mutex = "pawlock.primitives.key", "pawlock.primitives.mutex"
    scripts = [load(key, name, wire) for name in ("leave", "force") for wire in ("", "redisson")]
    scripts += [load(mutex, name, "redisson") for name in ("acquire", "renew", "adopt", "inspect")]
    return {script.sha: "key" if script.name in ("leave", "force") else "mutex" for script in scripts}


class Watch:
    """See the module.

    Args:
        world: The run.
        node: The server.
        believed: Called with every name after a script that concerned it.
        masters: Whether it is one of several independent masters.
    """

    _at_home: bool = True
    """Whether all that is known of a name was read on this very server."""

    def __init__(self, world: World, node: Node, believed: Believed, *, masters: bool) -> None:
        self.world = world
        self.node = node
        self._believed = believed
        self._families = _families(masters=masters)
        self._mutexes: dict[bytes, tuple[tuple[bytes, ...], Snapshot]] = {}
        self._permits: dict[bytes, tuple[tuple[bytes, ...], PermitState]] = {}
        self._votes: dict[bytes, tuple[tuple[bytes, ...], Vote]] = {}
        self._gone: dict[str, int] = {}
        self.freed: set[str] = set()
        self.forced: Callable[[str], object] = str
        self.results: Results | None = None

    def ran(self, call: Call, words: list[bytes], reply: Reply, *, changed: bool) -> None:
        """Judge one script run."""
        script = call.script
        keys, args = tuple(words[: script.numkeys]), words[script.numkeys :]
        family = self._families.get(script.sha) or _variants().get(script.sha, "")
        if family in ("mutex", "election", "key"):
            self._one(script.name, keys, args[words_of_wake(script) :], reply, changed=changed)
        elif family == "once":
            self._once(script.name, keys, args, reply, changed=changed)
        elif family == "permits":
            self._permit(script.name, keys, args, reply, changed=changed)
        elif family == "together":
            for parts, step in together_steps(keys, args, reply):
                self._mutex(parts, step, 0, changed=changed)
        elif family == "vote":
            self._vote(script.name, keys, args, reply)
        else:
            self._other(script.name, keys, args, reply, changed=changed)

    def _other(
        self, script: str, keys: tuple[bytes, ...], args: list[bytes], reply: Reply, *, changed: bool
    ) -> None:
        if script == "force":
            if reply[0] == b"R" and changed:
                # What its holder believes is out of date, as after a key that was deleted.
                self.node.lost_memory_at = self.world.now
                self.refresh()
                self.forced(args[0].decode())
            return
        self._expiring(keys)

    def written(self, name: bytes) -> None:
        """Look at a name anew, which somebody wrote who is not pawlock."""
        if name in self._mutexes:
            keys = self._mutexes[name][0]
            self._mutexes[name] = keys, take_mutex(self._store_of(name), keys)

    def refused(self, script: str, text: str) -> None:
        """Judge a script that the server refused: what renews or ends a lease passes without memory."""
        if text.startswith("OOM") and script in _NEEDS_NO_MEMORY:
            self.world.fail(f"memory: {script} was refused: {text}")

    def refresh(self) -> None:
        """Look at the server anew, after a fault changed it without a script."""
        store = self.node.store
        store.begin(self.node.us_at(self.world.now))
        # Tombstones may be gone as well.
        self._gone.clear()
        for name, (keys, _) in self._mutexes.items():
            self._mutexes[name] = keys, take_mutex(self._store_of(name), keys)
        for name, (keys, _) in self._permits.items():
            self._permits[name] = keys, take_permits(self._store_of(name), keys)
        for name, (keys, _) in self._votes.items():
            self._votes[name] = keys, take_vote(store, keys)

    def _store_of(self, name: bytes) -> Store:
        """The keys of whoever has a name."""
        return self.node.store

    def take_over(self, other: Watch) -> None:
        """Look from here on at the names that another server had, whose keys this one has by now."""
        self._mutexes = {**other._mutexes, **self._mutexes}
        self._permits = {**other._permits, **self._permits}
        self.refresh()

    def left(self) -> dict[str, str]:
        """Every token that waits or holds on the server, with its name."""
        self.refresh()
        kept: list[tuple[bytes, dict[str, int]]] = [
            (name, snapshot.leases) for name, (_, snapshot) in self._mutexes.items()
        ]
        kept += [(name, state.leases()) for name, (_, state) in self._permits.items()]
        kept += [(name, vote.leases) for name, (_, vote) in self._votes.items()]
        return {token: name.decode() for name, leases in kept for token in leases}

    def vote(self, name: str, token: str, mode: str) -> int:
        """Until when this master, of several, keeps its vote for a token in a mode; below 0: it has none."""
        key, now_ms = name.encode(), self.node.us_at(self.world.now) // 1000
        if key in self._permits:
            held, expiry = self._permits[key][1].at(now_ms).holders.get(token, ("", -1))
            # A writer's downgrade is on its way: the server may still, or already, know it otherwise.
            return expiry if mode in (held, "1") else -1
        vote = self._votes[key][1].at(now_ms) if key in self._votes else None
        return vote.expiry if vote is not None and vote.value == token else -1

    # By family --------------------------------------------------------------------------------------------------

    def _mutex(self, keys: tuple[bytes, ...], step: Step, tomb_ms: int, *, changed: bool) -> None:
        node, name = self.node, keys[0]
        now = node.store.now_ms
        known = self._mutexes.get(name)
        if known is None:
            before, after = Snapshot(now), take_mutex(node.store, keys)
        else:
            before = after = known[1]
            if not changed:
                before.at(now)
            elif self._at_home and known[0] == keys:
                after = next_mutex(node.store, keys, before)
            else:
                after = take_mutex(node.store, keys)
        self._mutexes[name] = keys, after
        if changed:
            for what in broken(before, after, step):
                self.world.fail(what)
        elif after.value is None and after.queue and after.live() and not reads_only(step):
            self.world.fail(f"I5: the name is free and a live ticket waits after {step}")
        for _, message in node.messages:
            # Others are told with fewer words.
            if message.count(b" ") >= 3:
                self._announced(message.decode(), after, step)
        leaving = step.leaving
        self._left(leaving, tomb_ms, after, step)
        if leaving and step.reply[0] == "R":
            self.freed.add(leaving)
        self._believed(node, name.decode(), after, step)

    def _once(
        self, script: str, keys: tuple[bytes, ...], args: list[bytes], reply: Reply, *, changed: bool
    ) -> None:
        """One run of a script of what is done once: that of a mutex, and a result beside it."""
        node, before, after, name = self.node, None, None, keys[0]
        if script not in ("forget", "look"):
            known = self._mutexes.get(name)
            before = Snapshot(node.store.now_ms) if known is None else copy(known[1]).at(node.store.now_ms)
            step = once_step(script, args, reply, tuple(before.queue))
            self._mutex(keys[:4], step, tomb_of(script, args), changed=changed)
            after = self._mutexes[name][1]
        done = keys[-1]
        self._expiring((done,))
        if self.results is not None:
            run = OnceRun(node, script, name.decode(), done, args, reply, before, after)
            self.results.ran(run, whole=node.lost_memory_at < 0)

    def _one(
        self, script: str, keys: tuple[bytes, ...], args: list[bytes], reply: Reply, *, changed: bool
    ) -> None:
        """One run of a script of one mutex."""
        step = step_of(script, args, reply)
        known = self._mutexes.get(keys[0])
        # What ran out is nobody's, and Redisson knows by itself when that is.
        over = known is None or 0 <= known[1].expiry < self.node.store.now_ms
        before = None if known is None or over else known[1].value
        self._mutex(keys[:4], step, tomb_of(script, args), changed=changed)
        if any(key.startswith(_OF_REDISSON) for key in keys):
            self._woken(keys[0], before, step, changed=changed)

    def _woken(self, name: bytes, before: str | None, step: Step, *, changed: bool) -> None:
        """Redisson's waiters are told of a key that pawlock left free, and of no other."""
        after = self._mutexes[name][1].value
        told = any(channel.startswith(_WAKES) for channel, _ in self.node.messages)
        if changed and before and not before.startswith(STRANGER) and after is None and not told:
            self.world.fail(f"wake: {name!r} is free without a message to Redisson after {step}")
        if told and after is not None and after != CLOSED:
            self.world.fail(
                f"wake: a message to Redisson says that {name!r} is free, and {after} has it after {step}"
            )

    def _announced(self, message: str, after: Snapshot, step: Step) -> None:
        """A hand-off message says what is so."""
        token, fence, expiry, _ = message.split(" ")
        if fence == "0":
            # One that tells observers to look.
            return
        if token not in after.holders() or (int(fence), int(expiry)) != (after.cur, after.leases[token]):
            self.world.fail(f"message: {message!r} says otherwise than {after} after {step}")

    def _permit(
        self, script: str, keys: tuple[bytes, ...], args: list[bytes], reply: Reply, *, changed: bool
    ) -> None:
        node, name = self.node, keys[0]
        parts = (*keys[:4], keys[-1])
        known = self._permits.get(name)
        run = permit_run(script, args, reply)
        if known is None:
            before, after = PermitState(node.store.now_ms), take_permits(node.store, parts)
        else:
            before = known[1]
            if not changed:
                after = before.at(node.store.now_ms)
            elif self._at_home and known[0] == parts:
                after = next_permits(node.store, parts, before)
            else:
                after = take_permits(node.store, parts)
        self._permits[name] = parts, after
        mail = [(channel.decode(), text.decode().split(" ")) for channel, text in node.messages]
        if changed or mail:
            for what in broken_permits(before, after, run, mail, whole=node.lost_memory_at < 0):
                self.world.fail(what)
        step = Step(script, run.token, reply=run.reply)
        self._left(run.leaving, int(args[3]) if script == "leave" else 0, after, step)
        if run.leaving and run.reply[0] == "R":
            self.freed.add(run.leaving)
        self._believed(node, name.decode(), after, step)

    def _vote(self, script: str, keys: tuple[bytes, ...], args: list[bytes], reply: Reply) -> None:
        node, name = self.node, keys[0]
        parts = (name, _fence_of(name))
        known = self._votes.get(name)
        before = Vote(node.store.now_ms) if known is None else known[1].at(node.store.now_ms)
        after = take_vote(node.store, parts)
        step = vote_step(script, args, reply)
        self._votes[name] = parts, after
        for what in broken_vote(before, after, step):
            self.world.fail(what)
        # One that refuses to write has no tombstone: a late vote blocks the name there until its ttl is over.
        tomb_ms = int(args[1]) if script == "leave" and keys[1] in node.store.data else 0
        self._left(step.leaving, tomb_ms, after, step)
        if step.leaving and step.reply[0] == "R":
            self.freed.add(step.leaving)
        self._expiring(keys)
        self._believed(node, name.decode(), after, step)

    def _left(self, leaving: str, tomb_ms: int, after: State, step: Step) -> None:
        """I7: a token that left does not come back while its tombstone stands."""
        gone, now_ms = self._gone, self.node.store.now_ms
        if leaving and tomb_ms:
            gone[leaving] = max(gone.get(leaving, 0), now_ms + tomb_ms)
        if gone:
            for token in after.leases() if isinstance(after, PermitState) else after.leases:
                if gone.get(token, 0) > now_ms:
                    self.world.fail(f"I7: {token} left and came back after {step}")

    def _expiring(self, keys: tuple[bytes, ...]) -> None:
        data, expires = self.node.store.data, self.node.store.expires
        for key in keys:
            if key in data and key not in expires:
                self.world.fail(f"I6: {key.decode()} has no expiry")


def _fence_of(name: bytes) -> bytes:
    """The key of a mutex' fence."""
    return b"{%b}:fence" % name
