"""What is done to a soak: one fault after the other, by a dice, each mended after a while."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.faults.clock.shifted import ShiftedServer
from tests.support.clock import now
from tests.support.history import Journal
from tests.support.resp import ReplyError

if TYPE_CHECKING:
    from tests.nightly.workloads.soak import Soak


class Nemesis:
    """Does harm to a soak.

    Attributes:
        done: How often each fault was done.
        noted: Rows for the history, each with its instant.
        forgetting: Spans in which the server forgot something, from before it to after it.
    """

    def __init__(self, soak: Soak) -> None:
        self.soak = soak
        self.done: Counter[str] = Counter()
        self.noted: list[tuple[float, str]] = []
        self.forgetting: list[tuple[float, float]] = []
        self._broken: list[tuple[float, float]] = []
        self._ahead = 0.0
        self._journal = Journal(lambda line: self.noted.append((now(), line)))
        self._faults: dict[str, Callable[[], None]] = {
            "kill a process": self.kill,
            "stop a process": self.stop,
            "crash the server": self.crash,
            "freeze the server": self.freeze,
            "restart the server empty": self.restart_empty,
            "delete all keys": self.flush,
            "forget the scripts": lambda: self._command("SCRIPT", "FLUSH"),
            "kill connections": lambda: self._command("CLIENT", "KILL", "TYPE", "normal"),
            "kill listeners": lambda: self._command("CLIENT", "KILL", "TYPE", "pubsub"),
            "pause clients": lambda: self._lasting(("CLIENT", "PAUSE", "400")),
            "a slow command": self.slow,
            "no memory": self.no_memory,
            "reset connections": lambda: self._of_proxy(self.soak.proxy.reset_all),
            "a black hole": self.blackhole,
            "refuse connections": self.refuse,
            "slow the network": self.delay,
            "lose replies": lambda: self._of_proxy(lambda: self.soak.proxy.swallow_reply("EVALSHA", times=3)),
            "lose requests": lambda: self._of_proxy(lambda: self.soak.proxy.drop_request("EVALSHA", times=3)),
            "double requests": lambda: self._of_proxy(
                lambda: self.soak.proxy.duplicate_request("EVALSHA", times=5)
            ),
            "late copies": self.late,
            "break at the reply": lambda: self._of_proxy(
                lambda: self.soak.proxy.kill_on_reply("EVALSHA", times=2)
            ),
            "lose messages": lambda: self._of_proxy(lambda: self.soak.proxy.cut_push(times=5)),
        }
        if isinstance(soak.server, ShiftedServer):
            self._faults["move the clock"] = self.jump

    def strike(self) -> None:
        """Do one."""
        # What came off the proxy's rules long ago must not be there forever.
        if self.soak.dice.random() < 0.2:
            self.soak.proxy.clear()
        name = self.soak.dice.choice(["kill a process", "stop a process", *self._faults])
        self._faults[name]()
        self.done[name] += 1

    def mend(self) -> None:
        """Let all work again, also where Ctrl-C came in the middle of a fault."""
        self.soak.server.start()
        self._command("CONFIG", "SET", "maxmemory", "0")
        self.soak.proxy.clear()
        self.soak.proxy.blackhole(on=False)
        self.soak.proxy.refuse(on=False)
        self.soak.proxy.delay()

    def outage(self, start: float, end: float) -> float:
        """The longest time in a span in which the server or the network did not work."""
        return max(
            [min(e, end) - max(s, start) for s, e in self._broken if s < end and e > start], default=0.0
        )

    # Processes --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL, and a new one in its place."""
        victim = self.soak.dice.choice([one for one in self.soak.actors if not one.elder])
        victim.process.kill()
        victim.process.communicate()
        for worker in victim.workers:
            self._journal.crash(now(), worker)
        self.soak.actors.remove(victim)
        self.soak.start()

    def stop(self) -> None:
        """SIGSTOP for a while, elders too."""
        victim = self.soak.dice.choice(self.soak.actors)
        for worker in victim.workers:
            self._journal.pause(now(), worker)
        victim.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(self.soak.dice.choice([0.1, 0.3, 1.5]) * self.soak.ttl)
        finally:
            victim.process.send_signal(signal.SIGCONT)

    # The server -------------------------------------------------------------------------------------------------

    def _note_broken(self, began: float) -> None:
        self._broken.append((began, now()))

    def _command(self, *words: str) -> None:
        with contextlib.suppress(OSError, ReplyError):
            self.soak.server.command(*words, timeout=5.0)
        self._broken.append((now(), now() + 0.1))

    def _lasting(self, words: tuple[str, ...]) -> None:
        began = now()
        self._command(*words)
        time.sleep(0.5)
        self._note_broken(began)

    def _forget(self, action: Callable[[], object]) -> None:
        began = now()
        self._journal.amnesia(began)
        action()
        self._journal.amnesia(now())
        self.forgetting.append((began, now()))
        self._note_broken(began)

    def crash(self) -> None:
        """SIGKILL; every write was on disk."""
        began = now()
        self.soak.server.kill()
        time.sleep(self.soak.dice.uniform(0.0, 1.5))
        self.soak.server.start()
        self._note_broken(began)

    def restart_empty(self) -> None:
        """It comes back without its data."""
        self._forget(lambda: self.soak.server.restart(keep_data=False))

    def flush(self) -> None:
        """FLUSHALL."""
        self._forget(lambda: self._command("FLUSHALL"))

    def freeze(self) -> None:
        """SIGSTOP for a while."""
        began = now()
        with self.soak.server.paused():
            time.sleep(self.soak.dice.choice([0.1, 0.5, 1.5]))
        self._note_broken(began)

    def slow(self) -> None:
        """A command that takes long."""
        began = now()
        self._command("DEBUG", "SLEEP", "0.7")
        self._note_broken(began)

    def no_memory(self) -> None:
        """Every write that takes memory is refused."""
        began = now()
        self._command("CONFIG", "SET", "maxmemory", "1")
        try:
            time.sleep(self.soak.dice.uniform(0.1, 1.0))
        finally:
            self._command("CONFIG", "SET", "maxmemory", "0")
        self._note_broken(began)

    def jump(self) -> None:
        """Its wall clock goes forward, and leases end early. (Back, fences could fall where it also forgot.)"""
        server = self.soak.server
        assert isinstance(server, ShiftedServer)
        self._ahead += self.soak.dice.uniform(0.1, 2.0)
        self._forget(lambda: server.jump(self._ahead))

    # The network ------------------------------------------------------------------------------------------------

    def _of_proxy(self, action: Callable[[], object]) -> None:
        action()
        self._broken.append((now(), now() + 2.0))

    def blackhole(self) -> None:
        """Nothing passes, and nobody is told."""
        began = now()
        self.soak.proxy.blackhole()
        try:
            time.sleep(self.soak.dice.choice([0.1, 0.5, 1.5]))
        finally:
            self.soak.proxy.blackhole(on=False)
        self._note_broken(began)

    def refuse(self) -> None:
        """No new connections."""
        began = now()
        self.soak.proxy.refuse()
        self.soak.proxy.reset_all()
        try:
            time.sleep(self.soak.dice.uniform(0.1, 1.0))
        finally:
            self.soak.proxy.refuse(on=False)
        self._note_broken(began)

    def delay(self) -> None:
        """Everything takes longer."""
        began = now()
        self.soak.proxy.delay(requests=0.05, replies=self.soak.dice.uniform(0.0, 0.15))
        try:
            time.sleep(1.0)
        finally:
            self.soak.proxy.delay()
        self._note_broken(began)

    def late(self) -> None:
        """A copy of a request arrives on another connection, seconds later."""
        late = self.soak.dice.uniform(0.2, 3.0)
        self._of_proxy(lambda: self.soak.proxy.duplicate_request_late("EVALSHA", times=3, seconds=late))
