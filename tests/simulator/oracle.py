"""The judge of a run: at every grant and every loss, and after every script, it asks whether each promise still stands.

It sees everything at once, the servers' keys, every client's belief and every clock, which no client can.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pawlock.core.runtime import Call
from pawlock.errors import LeaseLost, NotHeld
from pawlock.model import LeaseState
from tests.simulator.beliefs import Belief, conflict
from tests.simulator.invariants import Snapshot, Step
from tests.simulator.network import token_of
from tests.simulator.permit_rules import PermitState
from tests.simulator.results import Results
from tests.simulator.watch import State, Watch
from tests.simulator.watch_cluster import ClusterWatch

if TYPE_CHECKING:
    from pawlock.core.lease import HeldLease
    from tests.simulator.fleet import Fleet
    from tests.simulator.node import Node
    from tests.simulator.world import Process, World

__all__ = ["Oracle", "shown"]

_SLACK_MS = 1
_REPORTED_WITHIN = (
    0.6  # a thread that makes a connection cannot do anything else for a quarter of a second, or two
)
_REPORTED_AGAIN = 1.5
_TAKEN_SLACK = 1.0
"""A holder hears of an operator's word with its next renewal: its request and its answer take a while."""

_ASKED_AGAIN = 2.0
"""Where that very answer may be lost."""

_CIRCLE_WITHIN = 3.0
_REPLICAS_ANSWER = (
    1.0  # what is asked together with replicas is heard once they have answered, too, or not in time
)


Owner = tuple[str, int, Any]


class Oracle:
    """See the module.

    Args:
        world: The run.
        fleet: The servers.
        longest: The longest life in seconds that any lease of the run asks for.
        lone: Whether nothing breaks but single replies that are lost, seldom enough: then no lease is lost.
    """

    def __init__(self, world: World, fleet: Fleet, longest: float, *, lone: bool = False) -> None:
        self.world = world
        self.fleet = fleet
        self.beliefs: dict[str, list[Belief]] = {}
        self.top: dict[str, int] = {}
        self.newest_writer: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.lost: dict[str, Owner] = {}
        self.muddled: set[str] = set()
        self.uncontended = lone
        self.taken: set[str] = set()
        self._longest = longest
        self.crossing: dict[tuple[Process, Any], tuple[HeldLease, int, int, float]] = {}
        self.results: Results = Results(world)
        self.watches: dict[Node, Watch] = {}
        for node in fleet.nodes:
            watch = self.watches[node] = self._watch(node)
            node.judge, node.refused = watch.ran, watch.refused
            watch.forced, watch.results = self.forced, self.results

    def _watch(self, node: Node) -> Watch:
        cluster = self.fleet.cluster
        if cluster is None:
            return Watch(self.world, node, self._believed, masters=self.fleet.masters)
        others = list(self.watches.values())
        return ClusterWatch(self.world, node, self._believed, cluster, others)

    def refresh(self, node: Node) -> None:
        """Look at a server anew, after a fault changed it without a script."""
        self.watches[node].refresh()

    def promoted(self, node: Node) -> None:
        """Look at a replica that is the master by now."""
        for other, watch in self.watches.items():
            if other is not node:
                self.watches[node].take_over(watch)

    # Beliefs ----------------------------------------------------------------------------------------------------

    def excused(self) -> bool:
        """Whether a server lost keys or time so lately that a lease from before may still be believed in."""
        since = self.fleet.forgot_at()
        return since >= 0 and self.world.now < since + self._longest * 1.03 + 0.5

    def _believed(self, node: Node, name: str, after: State, step: Step) -> None:
        """I3: whoever relies on a lease has it on the server, for as long as it is relied on."""
        beliefs = self.beliefs.get(name)
        if not beliefs or not self.fleet.rules(node) or self.excused():
            return
        for belief in beliefs:
            if not belief.holds():
                continue
            hold = belief.lease.hold
            if self.fleet.masters:
                self._elected(name, belief, step)
                continue
            expiry = _kept(after, hold.token, belief.mode)
            if expiry < 0:
                self.world.fail(
                    f"I3: {hold.token} relies on {name!r}, and the server has {after} after {step}"
                )
            until = belief.process.clock.true(hold.valid_until)
            if node.us_at(until) // 1000 > expiry + _SLACK_MS:
                late = node.us_at(until) / 1000 - expiry
                self.world.fail(
                    f"I3: {hold.token} relies on {name!r} {late:.1f} ms longer than the server keeps it"
                )

    def _elected(self, name: str, belief: Belief, step: Step) -> None:
        hold = belief.lease.hold
        until = belief.process.clock.true(hold.valid_until)
        votes = 0
        for node in self.fleet.nodes:
            if node.restarted_at > self.world.now - self._longest * 1.03 - 0.5:
                # It may have forgotten the vote; nobody else gets it from there for so long.
                votes += 1
                continue
            expiry = self.watches[node].vote(name, hold.token, belief.mode)
            votes += expiry >= 0 and expiry + _SLACK_MS >= node.us_at(until) // 1000
        if votes * 2 <= len(self.fleet.nodes):
            self.world.fail(f"I3: {hold.token} relies on {name!r} with {votes} votes after {step}")

    def granted(self, key: str, belief: Belief, *, may_repeat: bool = False) -> None:
        """Judge a grant at the moment in which its owner gets it.

        Args:
            key: The key of what is granted.
            belief: The grant.
            may_repeat: True for a lease that goes on with the fence of another: adopted.
        """
        world = self.world
        before = self.beliefs.get(key, ())
        beliefs = [other for other in before if other.lease is not belief.lease and other.holds()]
        if not belief.holds():
            world.fail(f"grant: {_show(belief)} of {key!r} has no validity left")
        for wrong in conflict(belief, beliefs):
            self.counts["overlap excused"] += 1
            if not self.excused():
                with_whom = " and ".join(map(_show, (belief, *beliefs)))
                world.fail(f"{wrong}: {with_whom} hold {key!r}")
        self._judge_fence(key, belief, may_repeat=may_repeat)
        beliefs.append(belief)
        self.beliefs[key] = beliefs
        mine = _owner(belief.lease, belief.process)
        if self.lost.pop(key, mine) != mine or any(_overdue(other, belief) for other in before):
            self.counts["second owner after a loss"] += 1

    def _judge_fence(self, key: str, belief: Belief, *, may_repeat: bool) -> None:
        """Fences rise; of those who hold together, only a writer's must be above all before it."""
        fence, top = belief.lease.fence, self.top.get(key, 0)
        if belief.exclusive:
            least = top
            self.newest_writer[key] = max(fence, self.newest_writer.get(key, 0))
        else:
            least = self.newest_writer.get(key, 0)
        self.top[key] = max(top, fence)
        if fence <= least and not (may_repeat and fence > 0) and not self._fence_excused(top):
            self.world.fail(f"fence: {fence} of {key!r} after {least}")

    def _fence_excused(self, top: int) -> bool:
        # Promised only while the fence key is kept, or the clock reads later than the last fence.
        if self.fleet.forgot_at() < 0:
            return False
        return self.excused() or any(node.us_at(self.world.now - 1.0) <= top for node in self.fleet.nodes)

    def loss_reported(self, key: str, lease: HeldLease, process: Process) -> None:
        """Judge a loss at the moment in which it is reported to its owner."""
        if self.uncontended and lease.hold.token not in self.taken:
            self.world.fail(f"lone: {_shown_lease(lease)} of {key!r} was lost, and one reply at a time was")
        self.lost[key] = _owner(lease, process)
        self.counts["lost"] += 1
        late = process.clock.boot() - lease.hold.valid_until
        # Timers that stood still in a suspend are set anew within a second.
        if late > _REPORTED_WITHIN and process.stalled < self.world.now - _REPORTED_AGAIN:
            self.world.fail(
                f"loss: {_shown_lease(lease)} was told {late:.3f} s after the end of its validity"
            )

    def refused(self, process: Process, call: Call) -> None:
        """Judge what a client makes of a reply: one that says "not yours" ends the lease at once."""
        if call.script.name == "renew" and not self.fleet.masters:
            within = _REPORTED_WITHIN + (_REPLICAS_ANSWER if self.fleet.asks_replicas else 0.0)
            process.deliver(self.world.now + within, self._still_held, (process, token_of(call)))

    def _still_held(self, item: tuple[Process, str]) -> None:
        process, token = item
        for key, beliefs in self.beliefs.items():
            for belief in beliefs:
                if belief.process is process and belief.lease.hold.token == token and belief.holds():
                    self.world.fail(f"loss: {_show(belief)} of {key!r} goes on although the server said no")

    def forced(self, token: str) -> None:
        """An operator took a name from a token: whoever relies on it hears of it with the next renewal."""
        self.counts["taken by an operator"] += 1
        self.taken.add(token)
        within = self._longest / 3 + _TAKEN_SLACK + (_ASKED_AGAIN if self.uncontended else 0.0)
        for times in (1, 2, 4):
            self.world.at(self.world.now + times * within, self._still_relied_on, (token, within))

    def _still_relied_on(self, item: tuple[str, float]) -> None:
        token, within = item
        for key, beliefs in self.beliefs.items():
            for belief in beliefs:
                hold = belief.lease.hold
                since = belief.process.clock.boot() - hold.granted_at
                if hold.token == token and belief.holds() and since > within:
                    self.world.fail(
                        f"force: {_show(belief)} of {key!r} goes on after {since:.3f} s of its own, though an operator"
                        " took the name"
                    )

    def no_circle(self, waiting: tuple[Process, Any]) -> None:
        """Somebody waited in vain: judge whether it was for somebody that waited for it all the time."""
        lease, held, wanted, since = self.crossing[waiting]
        for other, (its_lease, its_own, its_wish, its_since) in self.crossing.items():
            # What an operator took ends with the next renewal: then the other one has it.
            both = (its_own, its_wish) == (wanted, held) and all(
                one.hold.live and one.hold.token not in self.taken for one in (lease, its_lease)
            )
            if both and self.world.now - max(since, its_since) > _CIRCLE_WITHIN:
                self.world.fail(
                    f"deadlock: {waiting[0].name}/{waiting[1].name} and {other[0].name}/{other[1].name} wait for each"
                    f" other since {max(since, its_since):.3f} s, and neither was reported"
                )

    def ended(self, lease: HeldLease, error: BaseException) -> None:
        """Judge the end of a lease that its owner is told was no release: O4, a resent release is still one."""
        hold = lease.hold
        freed = any(hold.token in watch.freed for watch in self.watches.values())
        ours = freed and not self.fleet.masters and not self.excused() and hold.token not in self.muddled
        if ours and isinstance(error, (NotHeld, LeaseLost)) and hold.state is LeaseState.RELEASED:
            self.world.fail(
                f"release: {_shown_lease(lease)} was freed by its own release, and its owner got {error}"
            )

    def left(self, *, everything: bool = False) -> dict[str, str]:
        """Every token that waits or holds, with its name; of several masters, only with a majority.

        A vote of fewer ends by itself: its undo may have been lost on the way.

        Args:
            everything: Whether the votes of fewer count too.
        """
        found: Counter[tuple[str, str]] = Counter()
        for node, watch in self.watches.items():
            if self.fleet.rules(node):
                found.update(watch.left().items())
        needed = len(self.fleet.nodes) // 2 + 1 if self.fleet.masters and not everything else 1
        return {token: name for (token, name), count in found.items() if count >= needed}

    def dropped(self, lease: HeldLease) -> None:
        """Its owner let go of a lease without releasing it: nobody relies on it, and nothing here keeps it alive."""
        for key, beliefs in self.beliefs.items():
            self.beliefs[key] = [belief for belief in beliefs if belief.lease is not lease]

    def forget(self, process: Process) -> None:
        """A process died: it believes in nothing any more."""
        for key, beliefs in self.beliefs.items():
            if any(belief.process is process and belief.lease.hold.live for belief in beliefs):
                self.lost[key] = (process.name, process.life, None)
            self.beliefs[key] = [belief for belief in beliefs if belief.process is not process]


def _kept(after: State, token: str, mode: str) -> int:
    """When the server lets go of a token that holds in a mode; below 0: it does not hold so."""
    if isinstance(after, Snapshot):
        return after.leases[token] if after.has_holder(token) else -1
    if isinstance(after, PermitState):
        held, expiry = after.holders.get(token, ("", -1))
        # A writer's downgrade is on its way: the server may still, or already, know it otherwise.
        return expiry if mode in (held, "1") else -1
    return -1


def _owner(lease: HeldLease, process: Process) -> Owner:
    """Who holds a lease: a thread or task of a process."""
    return process.name, process.life, lease.who


def _overdue(before: Belief, after: Belief) -> bool:
    """Whether a lease ran out on its owner, who does not know it yet, and somebody else has the name now."""
    lease, clock = before.lease, before.process.clock
    return (
        _owner(lease, before.process) != _owner(after.lease, after.process)
        and (before.exclusive or after.exclusive)
        and not lease.released
        and clock.boot() >= lease.hold.valid_until
    )


def _show(belief: Belief) -> str:
    return _shown_lease(belief.lease)


def _shown_lease(lease: HeldLease) -> str:
    return f"{lease.label} (fence {lease.fence}, {lease.hold.state})"


def shown(value: Any) -> Any:
    """A reply with its bytes as text, for traces."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return [shown(one) for one in value]  # pyright: ignore[reportUnknownVariableType] - of a reply, so anything
    return value
