"""What docs/wire/vectors.json shows: every reply of every script that waits, holds or counts, in its situation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["Scenes", "Stage"]


Json = Any
"""What a request or a reply may hold."""


class Stage(Protocol):
    """What records a scene."""

    def scene(self, about: str) -> None:
        """Begin a scene on an empty server."""

    def run(self, script: str, names: Sequence[str] = ("n",), stem: str = "", **args: Json) -> list[Any]:
        """Run a script, and record what it answers."""
        ...

    def command(self, *words: str | int) -> None:
        """Do something that no script does."""

    def wait(self, ms: int) -> None:
        """Let time pass."""


def token(letter: str, process: str = "") -> str:
    """A token whose public part is `a:1/main` for the letter a."""
    return f"{letter * 24}@{process or letter + ':1'}/main"


A, B, C, D = (token(letter) for letter in "abcd")
CLOSED = "closed@min_hold"
X, Y = "owner=x@shared", "owner=y@shared"


class Scenes:
    """The scenes, in the order of the file.

    Args:
        stage: What records them.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def all(self) -> None:
        """Play them all."""
        for play in (self.mutex, self.places, self.others, self.owners, self.several, self.refused):
            play()
        for play in (
            self.permits,
            self.readers,
            self.once,
            self.election,
            self.latch,
            self.barrier,
            self.redlock,
        ):
            play()

    def mutex(self) -> None:
        """A lock from its first request to its end."""
        scene, run = self._stage.scene, self._stage.run
        scene("One client takes a free name, sends the request again, renews and releases; the same again")
        run("mutex/acquire", token=A, mode=0)
        run("mutex/acquire", token=A, mode=0)
        run("mutex/acquire", token=B, mode=0)
        run("mutex/inspect")
        run("mutex/renew", token=A, channel="")
        run("mutex/leave", token=A)
        run("mutex/leave", token=A)
        run("mutex/renew", token=A, channel="")
        run("mutex/acquire", token=B, mode=2, block=5)
        run("mutex/acquire", token=C, mode=2)
        run("mutex/leave", token=A)
        run("mutex/renew", token=A, channel="")
        run("mutex/leave", token=B)
        run("mutex/acquire", token=C, mode=0)
        scene("Two wait; a release hands the name to the first, which confirms it; the second withdraws")
        run("mutex/acquire", token=A)
        run("mutex/acquire", token=B)
        run("mutex/acquire", token=C)
        run("mutex/acquire", token=B)
        run("mutex/renew", token=C, channel="")
        run("mutex/inspect")
        run("mutex/leave", token=A)
        run("mutex/renew", token=B, channel="")
        run("mutex/leave", token=C)
        run("mutex/leave", token=B)
        scene("The undo of a request that may still arrive: it acquires nothing")
        run("mutex/leave", token=A, tomb_ms=5000)
        run("mutex/acquire", token=A)
        run("mutex/acquire", token=B, mode=0)

    def places(self) -> None:
        """What waiters meet."""
        scene, run, wait = self._stage.scene, self._stage.run, self._stage.wait
        scene("The queue is full")
        for one in (A, B, C):
            run("mutex/acquire", token=one, max_waiters=1)
        scene("The holder expires: the first waiter asks and has it")
        run("mutex/acquire", token=A, ttl_ms=200)
        run("mutex/acquire", token=B)
        wait(250)
        run("mutex/renew", token=B, channel="")
        run("mutex/renew", token=A, channel="")
        scene("The holder expires: whoever comes next hands the name to the first waiter")
        run("mutex/acquire", token=A, ttl_ms=200)
        run("mutex/acquire", token=B)
        wait(250)
        run("mutex/acquire", token=C)
        run("mutex/renew", token=B, channel="")
        scene("A waiter stops asking: its place lapses")
        run("mutex/acquire", token=A)
        run("mutex/acquire", token=B, ticket_ttl_ms=200)
        run("mutex/acquire", token=C)
        wait(250)
        run("mutex/renew", token=C, channel="")
        run("mutex/leave", token=A)
        run("mutex/renew", token=B, channel="")
        scene("One client renews the places of several of its waiters; one of them is gone")
        run("mutex/acquire", token=A)
        run("mutex/acquire", token=B)
        run("mutex/acquire", token=C)
        run("mutex/beat", token=B, channel="", others=f"{C} {D}")
        run("mutex/beat", token=A, channel="", others=C)
        run("mutex/beat", token=D, channel="", others=C)
        scene("A hand-off names the waiters behind it that are of the same process: further words")
        run("mutex/acquire", token=A)
        for letter in "bcd":
            run("mutex/acquire", token=token(letter, "host:7"))
        run("mutex/leave", token=A, run="2")

    def others(self) -> None:
        """Holders of another kind, an operator, and leases that go from hand to hand."""
        scene, run, command = self._stage.scene, self._stage.run, self._stage.command
        scene("A foreign holder")
        command("SET", "pawlock:n", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "PX", 30_000)
        run("mutex/acquire", token=A, mode=0)
        run("mutex/acquire", token=A)
        run("mutex/renew", token=A, channel="")
        run("mutex/inspect")
        run("mutex/leave", token=A)
        run("mutex/leave", token=A)
        run("mutex/renew", token=A, channel="")
        scene("The name is kept closed after a release")
        run("mutex/acquire", token=A)
        run("mutex/leave", token=A, close_ms=5000)
        run("mutex/acquire", token=B, mode=0)
        run("mutex/acquire", token=B)
        command("DEL", "pawlock:n")
        run("mutex/renew", token=B, channel="")
        scene("An operator takes the name: its holder is told on its channel, the next waiter has it")
        run("mutex/peek")
        run("mutex/acquire", token=A)
        run("mutex/acquire", token=B)
        run("mutex/peek")
        run("mutex/force", value=A, tomb_ms=5000, channel="pawlock:wake:a")
        run("mutex/force", value=A, tomb_ms=5000, channel="pawlock:wake:a")
        run("mutex/renew", token=A, channel="")
        run("mutex/leave", token=A)
        run("mutex/force", value=C, tomb_ms=5000, channel="")
        scene("A client passes its lease to a waiter of its own; then others wait")
        run("mutex/acquire", token=A)
        run("mutex/swap", old_token=A, token=B)
        run("mutex/acquire", token=C)
        run("mutex/swap", old_token=B, token=D)
        run("mutex/leave", token=A, tomb_ms=5000)
        run("mutex/swap", old_token=C, token=A)
        scene("A client passes its lease on while the queue is full")
        for one in (A, B, C):
            run("mutex/acquire", token=one)
        run("mutex/swap", old_token=A, token=D, max_waiters=1)
        scene("A lease goes to another process, once")
        run("mutex/acquire", token=A)
        run("mutex/adopt", token=B, old=A)
        run("mutex/adopt", token=B, old=A)
        run("mutex/adopt", token=C, old=A)
        run("mutex/leave", token=D, tomb_ms=5000)
        run("mutex/adopt", token=D, old=B)

    def owners(self) -> None:
        """An explicit owner, with several holds."""
        scene, run = self._stage.scene, self._stage.run
        scene("Holds of one owner; another owner waits")
        run("mutex/own_acquire", token=A, owner=X)
        run("mutex/own_acquire", token=B, owner=X)
        run("mutex/own_acquire", token=A, owner=X)
        run("mutex/own_acquire", token=C, owner=Y, mode=0)
        run("mutex/own_acquire", token=C, owner=Y)
        run("mutex/own_acquire", token=D, owner=Y, max_waiters=1)
        run("mutex/acquire", token=D, mode=0)
        run("mutex/own_renew", token=A, owner=X, channel="")
        run("mutex/own_renew", token=C, owner=Y, channel="")
        run("mutex/own_renew", token=D, owner=X, channel="")
        run("mutex/own_leave", token=A, owner=X)
        run("mutex/inspect")
        run("mutex/own_leave", token=B, owner=X)
        run("mutex/own_renew", token=C, owner=Y, channel="")
        run("mutex/own_acquire", token=D, owner=X)
        run("mutex/own_leave", token=D, owner=X)
        run("mutex/own_leave", token=D, owner=X, tomb_ms=5000)
        run("mutex/own_acquire", token=D, owner=X)
        run("mutex/own_acquire", token=D, owner="x")

    def several(self) -> None:
        """Several names in one run."""
        scene, run = self._stage.scene, self._stage.run
        scene("Two names, both or neither; both renewed in one run")
        both = [{"token": A}, {"token": B}]
        run("mutex/multi", ("n", "m"), each=both)
        run("mutex/multi", ("n", "m"), each=both)
        run("mutex/renew_all", ("n", "m"), each=both)
        run("mutex/renew_all", ("n", "m"), each=[{"token": A}, {"token": C}])
        run("mutex/leave", token=A)
        run("mutex/multi", ("n", "m"), each=[{"token": C}, {"token": D}])
        run("mutex/leave", token=C, tomb_ms=5000)
        run("mutex/multi", ("n", "m"), each=[{"token": C}, {"token": D}])
        run("touch")

    def refused(self) -> None:
        """What is an error, before anything is written."""
        scene, run, command = self._stage.scene, self._stage.run, self._stage.command
        scene("No token, no channel")
        run("mutex/acquire", token=X)
        run("mutex/renew", token=X, channel="")
        run("mutex/leave", token=CLOSED)
        run("mutex/acquire", token=A)
        run("mutex/acquire", token=B, channel="a b")
        scene("A name of another wire version")
        command("HSET", "{pawlock:n}:fence", "v", "2")
        run("mutex/acquire", token=A)
        scene("A key of another type")
        command("LPUSH", "pawlock:n", "x")
        run("mutex/acquire", token=A)
        run("mutex/leave", token=A)

    def permits(self) -> None:
        """A semaphore of two."""
        scene, run = self._stage.scene, self._stage.run
        scene("Two permits: two hold, two wait, and who comes then is told so")
        for one in (A, B, C, D):
            run("permits/acquire", token=one)
        run("permits/acquire", token=A)
        run("permits/acquire", token=token("e"), wait=0)
        run("permits/acquire", token=token("e"), max_waiters=2)
        run("permits/inspect")
        run("permits/renew", token=A, channel="")
        run("permits/renew", token=C, channel="")
        run("permits/renew", token=token("e"), channel="")
        run("permits/beat", token=C, channel="", others=f"{D} {token('e')}")
        run("permits/beat", token=A, channel="", others=D)
        run("permits/beat", token=token("e"), channel="", others=D)
        run("permits/leave", token=A)
        run("permits/leave", token=A)
        run("permits/leave", token=D)
        run("permits/renew", token=C, channel="")
        run("permits/leave", token=D, tomb_ms=5000)
        run("permits/acquire", token=D)
        scene("Clients that differ about the number of permits; the number is changed")
        run("permits/acquire", token=A, mode="2")
        run("permits/acquire", token=B, mode="3")
        run("permits/acquire", token=B, permits=5)
        run("permits/acquire", token=B)
        run("permits/limit", limit=3, declared=2)
        run("permits/renew", token=B, channel="")
        run("permits/limit", limit=3, declared=2)

    def readers(self) -> None:
        """A read-write lock: the scripts of permits, without a limit."""
        scene, run = self._stage.scene, self._stage.run
        rw: dict[str, Any] = {"stem": "rwlock", "permits": 0}
        scene("Two readers, a writer behind them, a reader behind the writer; the writer becomes a reader")
        run("permits/acquire", token=A, mode="1", **rw)
        run("permits/acquire", token=B, mode="u", **rw)
        run("permits/acquire", token=C, mode="x", **rw)
        run("permits/acquire", token=D, mode="1", **rw)
        run("permits/leave", token=A, mode="1", **rw)
        run("permits/leave", token=B, mode="u", **rw)
        run("permits/renew", token=C, mode="x", channel="", **rw)
        run("permits/renew", token=C, mode="1", channel="", **rw)
        run("permits/renew", token=D, mode="1", channel="", **rw)

    def once(self) -> None:
        """What is done once, with its result."""
        scene, run = self._stage.scene, self._stage.run
        scene("One runs it, one waits; the result is left for all")
        fence = run("once/begin", token=A)[2]
        run("once/begin", token=B)
        run("once/renew", token=B, channel="")
        run("once/finish", token=C, type="s", value="x", fence=fence)
        run("once/finish", token=A, type="s", value="done", fence=fence)
        run("once/finish", token=A, type="s", value="done", fence=fence)
        run("once/renew", token=B, channel="")
        run("once/begin", token=C)
        run("once/look")
        run("once/forget")
        run("once/forget")
        run("once/look")
        run("once/begin", token=C)

    def election(self) -> None:
        """A leader, a candidate and an observer."""
        scene, run = self._stage.scene, self._stage.run
        scene("An observer is told when the leader changes")
        run("election/observe", token=C)
        run("election/observe", token=D, max_observers=1)
        run("election/acquire", token=A)
        run("election/acquire", token=B)
        run("election/renew", token=A, channel="")
        run("election/observe", token=C)
        run("election/leave", token=A)
        run("election/renew", token=B, channel="")
        run("election/hush", token=C)
        run("election/hush", token=C)

    def latch(self) -> None:
        """A latch of two."""
        scene, run, command = self._stage.scene, self._stage.run, self._stage.command
        two: dict[str, Any] = {"count": 2}
        scene("A latch of two: one waits until it opens, and again after a reset")
        run("latch/inspect")
        opened = run("latch/wait", token=A, round=0, **two)[3]
        run("latch/wait", token=A, round=opened, **two)
        run("latch/wait", token=B, round=opened, max_waiters=1, **two)
        run("latch/wait", token=B, round=0, count=3)
        run("latch/count_down", token=C, count=3)
        run("latch/count_down", token=C, **two)
        run("latch/count_down", token=C, **two)
        run("latch/inspect")
        run("latch/count_down", token=D, **two)
        run("latch/wait", token=A, round=opened, **two)
        run("latch/wait", token=A, round=0, **two)
        run("latch/leave", token=A, round=opened)
        run("latch/reset", token=B, **two)
        second = run("latch/wait", token=A, round=0, **two)[3]
        run("latch/wait", token=A, round=second, **two)
        run("latch/leave", token=A, round=second)
        command("DEL", "{pawlock:n}:1:latch")
        run("latch/wait", token=A, round=second, **two)

    def barrier(self) -> None:
        """A barrier of two."""
        scene, run = self._stage.scene, self._stage.run
        scene("Two pass together; one withdraws before the next round")
        run("barrier/arrive", token=A, mode=0, parties=2)
        run("barrier/arrive", token=A, mode=1, parties=2)
        run("barrier/arrive", token=B, mode=0, parties=3)
        run("barrier/inspect")
        run("barrier/arrive", token=B, mode=0, parties=2)
        run("barrier/arrive", token=A, mode=1, parties=2)
        run("barrier/leave", token=A)
        run("barrier/arrive", token=C, mode=1, parties=2)
        run("barrier/arrive", token=C, mode=0, parties=2)
        run("barrier/leave", token=C, tomb_ms=5000)
        run("barrier/leave", token=D)
        run("barrier/arrive", token=C, mode=0, parties=2)

    def redlock(self) -> None:
        """One of several masters."""
        scene, run = self._stage.scene, self._stage.run
        scene("A vote for a holder, and what a second candidate is told")
        run("redlock/grant", token=A, proposal=0, last=0)
        fence = run("redlock/grant", token=A, proposal=0, last=0, promised_ms=0)[2]
        run("redlock/grant", token=B, proposal=0, last=0)
        run("redlock/renew", token=A)
        run("redlock/renew", token=B)
        run("redlock/ratify", token=A, cur=fence + 5, block=1)
        run("redlock/ratify", token=B, cur=fence + 5, block=1)
        run("redlock/leave", token=A)
        run("redlock/leave", token=B, tomb_ms=5000)
        run("redlock/grant", token=B, proposal=0, last=0)
        run("redlock/grant", token=C, proposal=fence + 10**9, last=fence + 10**9, promised_ms=1000)
