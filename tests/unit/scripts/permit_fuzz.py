"""Clients that share permits, read, write and downgrade, crash, lose and repeat requests, on simulated time.

The clients follow the same rules as those of ``tests.unit.scripts.fuzz``; only what they ask for differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulator.permit_rules import PermitRun, PermitState, broken_permits
from tests.unit.scripts.fuzz import TOMB, Answered, Belief, Client, World
from tests.unit.scripts.model import Step
from tests.unit.scripts.permit_rig import PermitRig, take
from tests.unit.scripts.rig import DAY, Reply, Rig

LIMITS = (4, 4, 2, 7)


class PermitWorld(World):
    """A semaphore and a read-write lock; its clients; now and then another limit."""

    rig: PermitRig

    def __init__(self, rig: Rig, seed: int) -> None:
        self.limits: dict[str, int] = {}
        self.writers = {"rw": 0}
        self.seen: dict[str, PermitState] = {"sem": PermitState(0), "rw": PermitState(0)}
        super().__init__(rig, seed, ("sem", "rw"))
        self.later(self.rng.uniform(100, 2000), self.change_limit)

    def change_limit(self) -> None:
        limit = self.rng.choice(LIMITS)
        step = Step("limit", "")
        self.send("sem", step, (limit, 4), lambda _: None)
        self.later(self.rng.uniform(300, 3000), self.change_limit)

    def arrive(self, name: str, step: Step, args: tuple[Any, ...], answered: Answered) -> None:
        self.rig.now_us = self.start_us + int((self.now - self.behind) * 1000)
        self.rig.drift_us = self.rng.choice([0, 0, 400, 2500])
        reply = self.rig.run(step.script, (*args, self.fence_ttl()), name, dead=step.token)
        self.stats[f"{step.script} {reply[0]}"] += 1
        asked = args[1] if step.script in {"acquire", "renew", "leave"} else ""
        run = PermitRun(step.script, step.token, asked, step.mode, 4 if name == "sem" else 0, reply)
        after = take(self.rig, name)
        mail = self.rig.mail()
        if self.brief and not after.last and self.seen[name].last:
            self.stats["fence forgotten"] += 1
            after = replace(after, last=self.seen[name].last)
        fence_ms = 0 if self.brief else DAY
        for what in broken_permits(self.seen[name], after, run, mail, fence_ms=fence_ms):
            self.fail(f"{what}\n{self.seen[name]}\n{after}")
        self.count(self.seen[name].at(after.now), after)
        self.seen[name] = after
        if step.script == "leave":
            self.gone[step.token] = max(self.gone.get(step.token, 0), after.now + TOMB)
        for tok in after.leases():
            if self.gone.get(tok, 0) > after.now:
                self.fail(f"I7: {tok} left and came back after {step}")
        self.still_hold(name, after)
        self.deliver(mail)
        if self.rng.random() >= self.loss:
            self.later(self.latency(), lambda: answered(reply))

    def count(self, before: PermitState, after: PermitState) -> None:
        modes = sorted(mode for mode, _ in after.holders.values())
        if after.holders.keys() - before.holders.keys():
            self.stats["together"] += len(modes) > 1
        for tok, (mode, _) in after.holders.items():
            self.stats["downgraded"] += before.holders.get(tok, ("", 0))[0] == "x" and mode == "1"

    def still_hold(self, name: str, after: PermitState) -> None:
        """I3: whoever believes to hold does, and so for longer than it believes; a writer as a writer."""
        for belief in self.beliefs[name].values():
            if belief.valid <= self.now:
                continue
            mode, expiry = after.holders.get(belief.token, ("", 0))
            if expiry < after.now or (belief.value == "x" and mode != "x"):
                left = belief.valid - self.now
                self.fail(
                    f"I3: {belief.token} believes in {belief.value!r} for {left:.1f} ms more, but {after}"
                )

    def deliver(self, mail: list[tuple[str, list[str]]]) -> None:
        for channel, (tok, fence, expiry, _) in mail:
            for _ in range(1 + (self.rng.random() < self.doubles)):
                if self.rng.random() >= self.loss:
                    client = self.channels[channel]
                    a = (tok, int(fence), int(expiry))
                    self.later(self.latency(), lambda client=client, a=a: client.message(*a))  # type: ignore[misc]

    def took(self, name: str, belief: Belief, block: int) -> None:
        """A client holds: the fence of a writer is above all that were used before it, and below all after it."""
        others = [other for other in self.beliefs[name].values() if other.valid > self.now]
        if others and "x" in (belief.value, *(other.value for other in others)):
            self.fail(f"{belief} beside {others}")
        newest, highest = self.used[name]
        if belief.cur <= (highest if belief.value == "x" else newest):
            self.fail(f"fence {belief.cur} of {belief} after {newest} of a writer, {highest} of anybody")
        self.used[name] = (belief.cur if belief.value == "x" else newest, max(highest, belief.cur))
        self.beliefs[name][belief.token] = belief
        self.stats["held"] += 1


class PermitClient(Client):
    """One acquisition at a time, in a mode of its choice."""

    def start(self) -> None:
        super().start()
        rng = self.world.rng
        self.owner, self.block = "", 1
        self.wish = rng.choice(["1", "1", "2", "3", "5"] if self.name == "sem" else ["1", "1", "1", "x", "x"])

    def request(
        self,
        script: str,
        tok: str,
        args: tuple[Any, ...],
        answered: Answered,
        *,
        mode: int = 1,
    ) -> None:
        permits = 4 if self.name == "sem" else 0
        if script == "acquire":
            _, ttl, ticket_ttl, wait, _, channel, room = args
            args = (tok, self.wish, permits, ttl, ticket_ttl, wait, channel, room)
        elif script == "leave":
            args = (tok, self.wish, permits, *args[1:3])  # permits know no run of hand-overs
        else:
            args = (tok, self.wish, permits, *args[1:])
        super().request(script, tok, args, answered, mode=mode)

    def reply(self, tok: str, sent: float, reply: Reply) -> None:
        if tok == self.token and self.state == "waiting" and reply[0] == "H" and reply[4] != self.wish:
            self.world.fail(f"{tok} asked as {self.wish!r} and got {reply}")
        super().reply(tok, sent, reply)

    def held(self, cur: int, valid: float) -> None:
        world, tok = self.world, self.token
        self.state, self.valid = "held", valid
        self.belief = Belief(tok, self.wish, cur, valid)
        world.took(self.name, self.belief, self.block)
        if world.rng.random() < world.crashes:
            world.stats["crash"] += 1
            self.lose()
            world.later(200, self.again)
            return
        if world.rng.random() < 0.7:
            self.renew(tok)
        later = world.rng.uniform(0, 1) ** 2 * 200
        if self.wish == "x" and world.rng.random() < 0.4:
            world.later(later / 2, lambda: self.downgrade(tok))
        world.later(later, lambda: self.finish(tok))

    def downgrade(self, tok: str) -> None:
        if tok == self.token and self.state == "held":
            # A reader from here on, whatever comes back.
            self.wish = self.belief.value = "1"
            self.renew(tok)

    def finish(self, tok: str) -> None:
        if tok == self.token and self.state == "held":
            self.lose()
            self.leave(tok, close=self.world.rng.choice([0, 0, 0, 0, 50]))


PermitWorld.client = PermitClient
