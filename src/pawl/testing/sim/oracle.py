"""The judge of a run: after every script and every grant it asks whether each promise still stands.

It sees everything at once, the server's keys, every client's belief and every clock, which no client can.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pawl.core.runtime import Call, Reply
from pawl.errors import LeaseLost, NotHeld
from pawl.model import LeaseState
from pawl.testing.sim.invariants import Snapshot, Step, Ticket, broken
from pawl.testing.sim.store import Store, Value, ZSet

if TYPE_CHECKING:
    from pawl.core.lease import BaseLease
    from pawl.testing.sim.node import Node
    from pawl.testing.sim.world import Process, World

__all__ = ["Belief", "Oracle", "shown"]

_MUTEX = frozenset(
    {"acquire", "renew", "leave", "swap", "adopt", "inspect", "own_acquire", "own_renew", "own_leave"}
)
_SLACK_MS = 1
_NEEDS_NO_MEMORY = frozenset({"renew", "leave", "own_renew", "own_leave"})


class Belief(NamedTuple):
    """A lease that somebody relies on.

    Attributes:
        lease: The lease.
        process: Whose clock it follows.
        group: Leases of one group may be held together: those of an explicit owner, readers, permits.
        capacity: How many of the group; None: any number.
    """

    lease: BaseLease
    process: Process
    group: str
    capacity: int | None

    def holds(self) -> bool:
        """Whether its owner relies on it now."""
        lease = self.lease
        tenure = lease._tenure
        return (
            not lease._released
            and tenure.live
            and self.process.alive
            and self.process.clock.boot() < tenure.valid_until
        )


class Oracle:
    """See the module.

    Args:
        world: The run.
        longest: The longest life in seconds that any lease of the run asks for.
    """

    def __init__(self, world: World, longest: float) -> None:
        self.world = world
        self.node: Node | None = None
        self.beliefs: dict[str, list[Belief]] = {}
        self.top: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.lost: dict[str, str] = {}
        self._longest = longest
        self._snapshots: dict[bytes, Snapshot] = {}
        self._gone: dict[str, int] = {}
        self._freed: set[str] = set()
        self._changes = -1
        self._keys: dict[bytes, tuple[bytes, ...]] = {}

    # Scripts ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the server anew, after a fault changed it without a script."""
        self._changes = -1
        # Tombstones may be gone as well.
        self._gone.clear()
        for name, keys in self._keys.items():
            self._snapshots[name] = self._take(keys)

    def ran(self, node: Node, _who: str, call: Call, words: list[bytes], reply: Reply) -> None:
        """Judge one script run."""
        script = call.script
        keys = tuple(words[: script.numkeys])
        store = node.store
        if script.name not in _MUTEX or not keys[1].endswith(b"}:fence"):
            self._expiring(node, keys)
            return
        name = keys[0]
        before = self._snapshots.get(name)
        if before is None:
            self._keys[name] = keys
            before = Snapshot(store.now_ms)
        step = _step(script.name, words[script.numkeys :], reply)
        quiet = store.changes == self._changes
        after = before.at(store.now_ms) if quiet else self._take(keys)
        self._changes = store.changes
        self._snapshots[name] = after
        if not quiet:
            for what in broken(before, after, step, whole=node.lost_memory_at < 0):
                self.world.fail(what)
        elif after.value is None and after.queue and after.live() and not _reads_only(step):
            self.world.fail(f"I5: the name is free and a live ticket waits after {step}")
        for message in node.messages:
            self._announced(message, after, step)
        self._left(step, _tomb(script.name, words[script.numkeys :]), after, store.now_ms)
        self._believed(node, name.decode(), after, step)

    def _announced(self, message: bytes, after: Snapshot, step: Step) -> None:
        """A hand-off message says what is so."""
        token, fence, expiry, _, *behind = message.decode().split(" ")
        if token not in after.holders() or (int(fence), int(expiry)) != (after.cur, after.leases[token]):
            self.world.fail(f"message: {message.decode()!r} says otherwise than {after} after {step}")
        queue = after.queue
        if behind != sorted(queue, key=lambda token: queue[token].number)[: len(behind)]:
            self.world.fail(f"I8: {behind} do not stand right behind {token} in {after} after {step}")

    def refused(self, script: str, text: str) -> None:
        """Judge a script that the server refused: what renews or ends a lease passes without memory."""
        if text.startswith("OOM") and script in _NEEDS_NO_MEMORY:
            self.world.fail(f"memory: {script} was refused: {text}")

    def _left(self, step: Step, tomb_ms: int, after: Snapshot, now_ms: int) -> None:
        """I7: a token that left does not come back while its tombstone stands."""
        gone = self._gone
        if step.leaving and tomb_ms:
            gone[step.leaving] = max(gone.get(step.leaving, 0), now_ms + tomb_ms)
        if step.leaving and step.reply[0] == "R":
            self._freed.add(step.leaving)
        if gone:
            for token in after.leases:
                if gone.get(token, 0) > now_ms:
                    self.world.fail(f"I7: {token} left and came back after {step}")

    def _take(self, keys: tuple[bytes, ...]) -> Snapshot:
        node = self.node
        if node is None:
            raise AssertionError("a judge needs a server")
        store = node.store
        now, data, expires = store.now_ms, store.data, store.expires
        key_expiry: dict[str, int] = {}
        seen: dict[str, Value] = {}
        for part, key in zip(_PARTS, (*keys[:4], keys[-1]), strict=True):
            value = data.get(key)
            expiry = expires.get(key, -1)
            if value is not None and (expiry < 0 or expiry >= now):
                seen[part] = value
                key_expiry[part] = expiry
        value, fence, queue = seen.get("name"), _pairs(seen.get("fence")), seen.get("queue")
        return Snapshot(
            now,
            value.decode() if isinstance(value, bytes) else None,
            key_expiry.get("name", -2),
            int(fence.get(b"cur", 0)),
            int(fence.get(b"last", 0)),
            _tickets(queue, _pairs(seen.get("tickets"))) if isinstance(queue, ZSet) else {},
            {token.decode(): int(expiry) for token, expiry in seen["holds"].items()}  # type: ignore[union-attr]
            if "holds" in seen
            else {},
            key_expiry,
        )

    def _expiring(self, node: Node, keys: tuple[bytes, ...]) -> None:
        store = node.store
        for key in keys:
            if key in store.data and key not in store.expires:
                self.world.fail(f"I6: {key.decode()} has no expiry")

    # Beliefs ----------------------------------------------------------------------------------------------------

    def _excused(self) -> bool:
        """Whether the server lost keys or time so lately that a lease from before may still be believed in."""
        node = self.node
        return (
            node is not None
            and node.lost_memory_at >= 0
            and self.world.now < node.lost_memory_at + self._longest * 1.03 + 0.5
        )

    def _believed(self, node: Node, name: str, after: Snapshot, step: Step) -> None:
        """I3: whoever relies on a lease has it on the server, for as long as it is relied on."""
        beliefs = self.beliefs.get(name)
        if not beliefs or self._excused():
            return
        for belief in beliefs:
            if not belief.holds():
                continue
            tenure = belief.lease._tenure
            expiry = after.leases.get(tenure.token, -1)
            if tenure.token not in after.holders():
                self.world.fail(
                    f"I3: {tenure.token} relies on {name!r}, and the server has {after} after {step}"
                )
            until = belief.process.clock.true(tenure.valid_until)
            if node.us_at(until) // 1000 > expiry + _SLACK_MS:
                late = node.us_at(until) / 1000 - expiry
                self.world.fail(
                    f"I3: {tenure.token} relies on {name!r} {late:.1f} ms longer than the server keeps it"
                )

    def granted(self, key: str, belief: Belief, *, may_repeat: bool = False) -> None:
        """Judge a grant at the moment in which its owner gets it.

        Args:
            key: The key of what is granted.
            belief: The grant.
            may_repeat: True for a lease that goes on with the fence of another: adopted, or of a shared owner.
        """
        world, lease = self.world, belief.lease
        beliefs = [other for other in self.beliefs.get(key, ()) if other.holds() and other.lease is not lease]
        if not belief.holds():
            world.fail(f"grant: {_told(belief)} of {key!r} has no validity left")
        for other in beliefs:
            if other.group != belief.group or not belief.group:
                self.counts["overlap excused"] += 1
                if not self._excused():
                    world.fail(f"exclusion: {_told(belief)} and {_told(other)} both hold {key!r}")
        if (
            belief.capacity is not None
            and belief.group
            and len(beliefs) >= belief.capacity
            and not self._excused()
        ):
            world.fail(f"capacity: {len(beliefs) + 1} hold {key!r}, at most {belief.capacity} may")
        self._judge_fence(key, lease.fence, may_repeat=may_repeat)
        beliefs.append(belief)
        self.beliefs[key] = beliefs
        if self.lost.get(key, belief.process.name) != belief.process.name:
            self.counts["second owner after a loss"] += 1
            del self.lost[key]

    def _judge_fence(self, key: str, fence: int, *, may_repeat: bool) -> None:
        top = self.top.get(key, 0)
        if fence > top:
            self.top[key] = fence
        elif not (may_repeat and fence > 0) and not self._fence_excused(top):
            self.world.fail(f"fence: {fence} of {key!r} after {top}")

    def _fence_excused(self, top: int) -> bool:
        node = self.node
        # Promised only while the fence key is kept, or the clock reads later than the last fence.
        return (
            node is not None
            and node.lost_memory_at >= 0
            and (self._excused() or node.us_at(self.world.now - 1.0) <= top)
        )

    def told(self, key: str, lease: BaseLease, process: Process) -> None:
        """Judge a loss at the moment in which its owner is told."""
        self.lost[key] = process.name
        self.counts["lost"] += 1
        late = process.clock.boot() - lease._tenure.valid_until
        # Timers that stood still in a suspend are set anew within a second.
        if late > _TOLD_WITHIN and process.stalled < self.world.now - _TOLD_AGAIN:
            self.world.fail(f"loss: {_told_lease(lease)} was told {late:.3f} s after the end of its validity")

    def answered(self, process: Process, call: Call, reply: Reply) -> None:
        """Judge what a client makes of a reply: one that says "not yours" ends the lease at once."""
        if call.script.name in ("renew", "own_renew") and reply[0] == b"U":
            token = call.body.split(b"\r\n")[2 * call.script.numkeys + 1].decode()
            process.deliver(self.world.now + _TOLD_WITHIN, self._still_held, (process, token))

    def _still_held(self, item: tuple[Process, str]) -> None:
        process, token = item
        for key, beliefs in self.beliefs.items():
            for belief in beliefs:
                if belief.process is process and belief.lease._tenure.token == token and belief.holds():
                    self.world.fail(f"loss: {_told(belief)} of {key!r} goes on although the server said no")

    def ended(self, lease: BaseLease, error: BaseException) -> None:
        """Judge the end of a lease that its owner is told was no release: O4, a resent release is still one."""
        tenure = lease._tenure
        ours = tenure.token in self._freed and not self._excused()
        if ours and isinstance(error, (NotHeld, LeaseLost)) and tenure.state is LeaseState.RELEASED:
            self.world.fail(
                f"release: {_told_lease(lease)} was freed by its own release, and its owner told {error}"
            )

    def left(self, store: Store) -> dict[str, str]:
        """Every token that waits or holds on the server, with its name."""
        self.refresh()
        return {
            token: name.decode()
            for name, kept in self._snapshots.items()
            for token in kept.at(store.now_ms).leases
        }

    def dropped(self, lease: BaseLease) -> None:
        """Its owner let go of a lease without releasing it: nobody relies on it, and nothing here keeps it alive."""
        for key, beliefs in self.beliefs.items():
            self.beliefs[key] = [belief for belief in beliefs if belief.lease is not lease]

    def forget(self, process: Process) -> None:
        """A process died: it believes in nothing any more."""
        for key, beliefs in self.beliefs.items():
            self.beliefs[key] = [belief for belief in beliefs if belief.process is not process]


_TOLD_WITHIN = (
    0.6  # a thread that makes a connection cannot do anything else for a quarter of a second, or two
)
_TOLD_AGAIN = 1.5
_PARTS = ("name", "fence", "queue", "tickets", "holds")


def _pairs(value: Value | None) -> dict[bytes, bytes]:
    return value if isinstance(value, dict) else {}


def _tickets(queue: ZSet, tickets: dict[bytes, bytes]) -> dict[str, Ticket]:
    return {
        token.decode(): _ticket(number, tickets.get(token, b"0 0 0 - -"))
        for token, number in queue.scores.items()
    }


@lru_cache(maxsize=1024)
def _ticket(number: float, text: bytes) -> Ticket:
    words = text.split(b" ", 4)
    return Ticket(int(number), int(words[0]), int(words[2]), words[4].decode())


def _step(script: str, args: list[bytes], reply: Reply) -> Step:
    status = reply[0].decode(), *reply[2:]
    first = args[0].decode()
    if script == "swap":
        return Step(script, args[2].decode(), first, reply=status)
    if script == "adopt":
        return Step(script, first, args[1].decode(), reply=status)
    if script == "inspect":
        return Step(script, "", reply=status)
    if script.startswith("own_"):
        mode = int(args[4]) if script == "own_acquire" else 1
        return Step(script, first, owner=args[1].decode(), mode=mode, reply=status)
    if script == "leave":
        return Step(script, first, reply=status, spent=tuple(args[3].decode().split(" ")[1:]))
    return Step(script, first, mode=int(args[3]) if script == "acquire" else 1, reply=status)


def _tomb(script: str, args: list[bytes]) -> int:
    at = {"leave": 1, "swap": 1, "own_leave": 2}.get(script)
    return int(args[at]) if at is not None else 0


def _reads_only(step: Step) -> bool:
    return step.script == "inspect" or step.reply[0] == "X" or (step.script == "acquire" and step.mode == 2)


def _told(belief: Belief) -> str:
    return _told_lease(belief.lease)


def _told_lease(lease: BaseLease) -> str:
    return f"{lease.token} (fence {lease.fence}, {lease._tenure.state})"


def shown(value: Any) -> Any:
    """A reply with its bytes as text, for traces."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return [shown(one) for one in value]  # pyright: ignore[reportUnknownVariableType] - of a reply, so anything
    return value
