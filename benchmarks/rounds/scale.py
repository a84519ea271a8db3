"""P9: what grows with the number of leases, waiters and names, and what must not."""

from __future__ import annotations

import time

from benchmarks.model import Participant, Sample
from benchmarks.process import ParticipantError
from benchmarks.rounds.base import PATIENCE, START, Round, RoundContext
from benchmarks.server import Snapshot, Stats, used_memory

_A_NAME_A_SECOND = 2_000  # no library takes fewer
_SETTLE = 0.5  # s
_TURNS = 10  # of a short queue, so that enough releases are counted
_LOOKS = 5
_IDLE = 1.5  # s in which nobody is served: more than it takes each waiter to say that it still waits


class _StepRound(Round):
    """A participant that is told what to do next, and measured meanwhile."""

    def __init__(self, context: RoundContext, participant: Participant) -> None:
        super().__init__(context, participant)
        self._size = int(participant.options["size"])
        self._program = self._start()
        (self._child,) = self._program.children
        self._sample: Sample = {"size": float(self._size)}

    def warm_up(self) -> None:
        """Let it start."""
        self._child.hear(START)

    def sample(self) -> Sample:
        """Return what the steps found."""
        return self._sample

    def _end(self) -> None:
        """End its process: whoever plays next must not pay for its leases and waiters."""
        self._program.close()
        self._server.command("FLUSHALL")

    def _step(self, command: Sample) -> tuple[Sample, Stats]:
        seconds = command.get("watch", 0.0) + command.get("over", 0.0)
        seconds += (command.get("take", 0.0) + command.get("queue", 0.0)) / _A_NAME_A_SECOND
        stats, before = Stats(), Snapshot.of(self._server)
        answer = self._child.ask(command, seconds + PATIENCE)
        stats.add(before, Snapshot.of(self._server), self._peer.commands)
        return answer, stats


class LeasesRound(_StepRound):
    """So many leases held and renewed: the cost of a second, on both sides, and the memory of one lease."""

    def play(self) -> None:
        """Take them over one renewal period, then watch one whole period of renewals."""
        period = self._scenario.seconds
        before = used_memory(self._server)
        taken, _ = self._step({"take": float(self._size), "over": period})
        held = used_memory(self._server)
        watched, stats = self._step({"watch": period})
        self._step({"drop": 1.0})
        size = self._size
        self._sample |= {
            "client_bytes": taken["bytes"] / size,
            "server_bytes": (held - before) / size,
            "core_share": watched["cpu"] / watched["wall"],
            "server_core_share": stats.cpu / watched["wall"],
            "commands_per_s": stats.commands / watched["wall"],
            "cpu_us_per_renewal": watched["cpu"] / size * 1e6,
            "server_us_per_renewal": stats.cpu / size * 1e6,
        }
        self._end()


class WaitersRound(_StepRound):
    """So many waiters behind one name: what one release costs."""

    def _wait_until_queued(self, turn: int) -> None:
        """Wait until the server has heard of all waiters."""
        until = time.monotonic() + PATIENCE
        queue = f"{{pawlock:{self._job.name}-{turn}}}:1:queue"
        while self._server.command("ZCARD", queue) != self._size:
            if time.monotonic() > until:
                raise ParticipantError(f"{self._job.name}: not all of its waiters stand in the queue")
            time.sleep(0.05)

    def play(self) -> None:
        """Queue them, then let as many have it as the scenario says; a short queue is filled anew some times."""
        served = min(int(self._scenario.seconds), self._size)
        turns = min(_TURNS, int(self._scenario.seconds) // served)
        looking = sorted(self._stats_of_nothing() for _ in range(_LOOKS))[_LOOKS // 2]
        sums, stats = dict.fromkeys(("served", "cpu", "wall"), 0.0), Stats()
        for turn in range(turns):
            self._queue(turn)
            answer, one = self._step({"serve": float(served)})
            sums = {key: value + answer[key] for key, value in sums.items()}
            stats.commands += one.commands
            stats.cpu += one.cpu - looking
        number = sums["served"]
        self._sample |= {
            "commands_per_release": stats.commands / number,
            "server_us_per_release": stats.cpu / number * 1e6,
            "cpu_us_per_release": sums["cpu"] / number * 1e6,
            "us_per_release": sums["wall"] / number * 1e6,
        }
        self._end()

    def _stats_of_nothing(self) -> float:
        """Seconds of the server's CPU that two looks at its counters take: with ten releases they would be the most."""
        nothing = Stats()
        nothing.add(Snapshot.of(self._server), Snapshot.of(self._server), self._peer.commands)
        return nothing.cpu

    def _queue(self, turn: int) -> None:
        """Have all wait; the first time, look at what it costs that they do."""
        self._step({"queue": float(self._size), "turn": float(turn)})
        self._wait_until_queued(turn)
        if turn:
            self._step({"settle": _SETTLE})
            return
        idle, begin = Snapshot.of(self._server), time.monotonic()
        time.sleep(_IDLE)
        idling = Stats()
        idling.add(idle, Snapshot.of(self._server), self._peer.commands)
        idled = time.monotonic() - begin
        settled, _ = self._step({"settle": _SETTLE})
        self._sample |= {
            "client_bytes": settled["bytes"] / self._size,
            "idle_commands_per_s": idling.commands / idled,
            "idle_server_share": idling.cpu / idled,
        }


class NamesRound(_StepRound):
    """So many names, each held by a lease of a long life: memory of one lock on both sides."""

    def play(self) -> None:
        """Take them all, as fast as it goes."""
        before = used_memory(self._server)
        taken, stats = self._step({"take": float(self._size)})
        size = self._size
        self._sample |= {
            "client_bytes": taken["bytes"] / size,
            "server_bytes": (used_memory(self._server) - before) / size,
            "us_per_acquire": taken["wall"] / size * 1e6,
            "cpu_us_per_acquire": taken["cpu"] / size * 1e6,
            "server_us_per_acquire": stats.cpu / size * 1e6,
            "commands_per_grant": stats.commands / size,
        }
        self._end()
