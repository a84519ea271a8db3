"""Hours of everything at once: `python -m tests.nightly.workloads.soak --minutes 60`, or `make soak MINUTES=60`.

Sync and async processes use every primitive while processes are killed and stopped, the server crashes, freezes,
forgets and runs out of memory, its clock moves, and connections break in every way. Every grant is noted and judged,
chapter by chapter; memory, files and connections of the processes that live must stay flat. Ctrl-C ends it with the
summary of what was seen until then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from tests.faults.clock.shifted import ShiftedServer, why_not
from tests.nightly.workloads.nemesis import Nemesis
from tests.nightly.workloads.soaker import Duty
from tests.support.clock import now
from tests.support.history import History, Rules, Violation, check, report
from tests.support.proxy import Proxy
from tests.support.resp import ReplyError
from tests.support.servers import Server

SOAKER = Path(__file__).with_name("soaker.py")
WORKERS = 3
ELDERS = 2
"""So many processes are never killed, one of each API: what grows with time grows in them."""
RSS_SLACK = 12_288
"""kB by which an elder may grow from its first third to its last: arenas of the allocator, caches of a fixed size."""
FILES_SLACK = 8
CLIENTS_SLACK = 12


def excused(violation: Violation, forgetting: list[tuple[float, float]], ttl: float) -> bool:
    """Whether it began while the server was just forgetting, or before a renewal could tell of that.

    Until then a client that holds by a grant from before passes it on inside: nobody noted what it passed on. Such a
    lease stands beside that of whoever the server has granted the name since, and has the older, lower fence.
    """
    falls = violation.check == "fences" and len({one.fence for one in violation.operations}) > 1
    if violation.check != "exclusion" and not falls:
        return False
    began = max(operation.end for operation in violation.operations)
    return any(start <= began <= end + ttl / 3 for start, end in forgetting)


@dataclass
class Actor:
    """One process."""

    number: int
    process: subprocess.Popen[str]
    elder: bool

    @property
    def workers(self) -> list[str]:
        """What its threads or tasks are called in the history."""
        return [f"p{self.number}.{worker}" for worker in range(WORKERS)]


class Soak:
    """One run.

    Args:
        folder: Where journals go; a chapter's are removed once they are judged and found right.
        seconds: For how long.
        seed: Of what is done when.
        actors: Processes at one time.
        chapter: Seconds of a chapter.
        ttl: Of every lease.
        naive: Whether the locks let anybody in.
    """

    def __init__(
        self,
        folder: Path,
        seconds: float,
        seed: int,
        *,
        actors: int = 6,
        chapter: float = 20.0,
        ttl: float = 1.0,
        naive: bool = False,
    ) -> None:
        self.folder = folder
        self.seconds = seconds
        self.ttl = ttl
        self.chapter = chapter
        self.count = actors
        self.naive = naive
        self.dice = random.Random(seed)
        self.shifted = why_not() is None
        self.server: Server = (
            ShiftedServer(folder, persist=True, args=["--enable-debug-command", "local"])
            if self.shifted
            else Server(persist=True, args=["--enable-debug-command", "local"])
        )
        self.actors: list[Actor] = []
        self.born = 0
        self.began = 0.0
        self.deaths: list[str] = []
        self.violations: list[Violation] = []
        self.grants: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.clients: list[int] = []
        self.lags: list[tuple[float, float]] = []
        self.judged = 0
        self.interrupted = False
        self._ctrl_c: Any = None

    def __enter__(self) -> Self:
        self.server.start()
        self.proxy = Proxy(self.server).start()
        self.nemesis = Nemesis(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self.actors:
            actor.process.kill()
            actor.process.communicate()
        self.proxy.stop()
        self.server.stop()
        if self._ctrl_c is not None:
            signal.signal(signal.SIGINT, self._ctrl_c)

    def start(self, *, elder: bool = False) -> Actor:
        """Start a process; every other goes through the proxy."""
        number, self.born = self.born, self.born + 1
        api = ("threads", "asyncio")[number % 2]
        url = self.proxy.url if number // 2 % 2 else self.server.url
        duty = Duty(
            url, "", "", api, number, WORKERS, self.ttl, number, naive=self.naive,
            chapter=self.chapter, began=self.began, folder=str(self.folder),
        )  # fmt: skip
        errors = (self.folder / f"errors-{number}").open("w", encoding="utf-8")
        with errors:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", str(SOAKER), json.dumps(asdict(duty))],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                # A Ctrl-C is the director's: it ends them when it has what it wants.
                start_new_session=True,
            )
        actor = Actor(number, process, elder)
        self.actors.append(actor)
        return actor

    def run(self) -> None:
        """Do harm until the time is up or Ctrl-C comes; judge each chapter when it is long over."""
        self.began = now()
        for index in range(self.count):
            self.start(elder=index < ELDERS)
        in_call = now()
        try:
            while now() < self.began + self.seconds:
                self._rest(self.dice.uniform(0.2, 0.8))
                self.nemesis.strike()
                self._look_after()
                while self.judged < int((now() - self.began) / self.chapter) - 1:
                    self._judge(self.judged)
                if now() - in_call >= 10:
                    in_call = now()
                    self._say()
        except KeyboardInterrupt:
            self.interrupted = True
        # A second Ctrl-C must not take the summary away.
        self._ctrl_c = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._end()

    def _rest(self, seconds: float) -> None:
        """Sleep, and note by how much longer: so late whoever else is on this machine may be, too."""
        began = now()
        time.sleep(seconds)
        self.lags.append((now(), now() - began - seconds))

    def _end(self) -> None:
        self.nemesis.mend()
        (self.folder / "over").touch()
        for actor in self.actors:
            try:
                code = actor.process.wait(60)
            except subprocess.TimeoutExpired:
                self.deaths.append(
                    f"process {actor.number} did not end; it was aborted:\n{self._aborted(actor)}"
                )
                continue
            if code != 0:
                self.deaths.append(f"process {actor.number} ended with {code}:\n{self._errors(actor)}")
        for chapter in range(self.judged, int((now() - self.began) / self.chapter) + 1):
            self._judge(chapter)

    def _aborted(self, actor: Actor) -> str:
        actor.process.send_signal(signal.SIGABRT)
        actor.process.wait()
        return self._errors(actor)

    def _errors(self, actor: Actor) -> str:
        return (self.folder / f"errors-{actor.number}").read_text(errors="replace")[-4000:]

    def _look_after(self) -> None:
        for actor in list(self.actors):
            code = actor.process.poll()
            if code is not None:
                self.actors.remove(actor)
                actor.process.communicate()
                self.deaths.append(f"process {actor.number} ended with {code}:\n{self._errors(actor)}")
                self.start(elder=actor.elder)
        try:
            info = self.server.command("INFO", "clients", timeout=1.0)
        except (OSError, ReplyError):
            return
        if isinstance(info, bytes):
            found = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
            self.clients.append(int(found[b"connected_clients"]))

    # Judging ----------------------------------------------------------------------------------------------------

    def _judge(self, chapter: int) -> None:
        """Judge what began in a chapter; who began it late may still be noting in the one after."""
        self.judged = max(self.judged, chapter + 1)
        paths = sorted(self.folder.glob(f"journal-{chapter}-*"))
        start = self.began + chapter * self.chapter
        span = (start, start + self.chapter + 30)
        lines = [
            line for path in paths for line in path.read_text(encoding="utf-8").splitlines(keepends=True)
        ]
        lines += [line for at, line in self.nemesis.noted if span[0] <= at <= span[1]]
        history = History.read(lines)
        for operation in history.operations.values():
            self.outcomes[operation.outcome] += 1
            if operation.granted:
                self.grants[operation.name.rpartition("-")[0]] += 1
        broken = self.nemesis.outage(*span)
        lag = max((late for at, late in self.lags if span[0] <= at <= span[1]), default=0.0)
        # Where processes alone were harmed, a free name is granted within a second of the ttl's end.
        slack = 1.5 + broken * 1.5 + 4.0 * (broken > 0) + 2 * lag
        rules = Rules(ttl=self.ttl, slack=slack, overtakes=None, grace=0.3)
        found = [one for one in check(history, rules) if not excused(one, self.nemesis.forgetting, self.ttl)]
        self.violations += found
        if not found:
            for path in paths:
                path.unlink()

    # Telling ----------------------------------------------------------------------------------------------------

    def _say(self) -> None:
        seconds, grants = now() - self.began, sum(self.grants.values())
        print(
            f"{seconds / 60:6.1f} min  {grants:8d} grants judged  {sum(self.nemesis.done.values()):5d} faults  "
            f"{len(self.violations)} violations  {len(self.deaths)} unexpected ends",
            flush=True,
        )

    def growth(self) -> list[tuple[str, int, int, int]]:
        """What there was of each thing that must stay flat: what, in the first third, in the last, the slack.

        Of memory the least counts, as what a burst took is given back slowly; of files and threads the most.
        """
        rows: list[tuple[str, int, int, int]] = []
        for actor in [one for one in self.actors if one.elder]:
            path = self.folder / f"vitals-{actor.number}"
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            vitals: list[dict[str, Any]] = [json.loads(line) for line in lines][5:]
            for what, slack, pick in (
                ("rss", RSS_SLACK, min),
                ("files", FILES_SLACK, max),
                ("threads", 4, max),
            ):
                values = [int(one[what]) for one in vitals]
                if len(values) >= 9:
                    third = len(values) // 3
                    rows.append(
                        (
                            f"{what} of process {actor.number}{', kB' * (what == 'rss')}",
                            pick(values[:third]),
                            pick(values[-third:]),
                            slack,
                        )
                    )
        clients = self.clients[20:]
        if len(clients) >= 9:
            third = len(clients) // 3
            # The median: a fault leaves many half-open for a moment.
            first, last = int(median(clients[:third])), int(median(clients[-third:]))
            rows.append(("connections at the server", first, last, CLIENTS_SLACK))
        return rows

    def wrong(self) -> list[str]:
        """What must not have been."""
        found = list(self.deaths)
        if self.violations:
            found.append(report(self.violations))
        found += [
            f"{what} grew from {a} to {b}, by more than {s}" for what, a, b, s in self.growth() if b > a + s
        ]
        if sum(self.grants.values()) < self.seconds and not self.interrupted:
            found.append(f"only {sum(self.grants.values())} grants in {self.seconds:g} s")
        return found

    def summary(self) -> str:
        """What a person wants to know."""
        grants, outcomes = Counter(self.grants), self.outcomes
        grants["multi_lock"] = sum(grants.pop(name, 0) for name in "abc")
        wrong = self.wrong()
        interrupted = ", ended by Ctrl-C" if self.interrupted else ""
        lines = [
            f"{(now() - self.began) / 60:.1f} minutes{interrupted}, {self.born} processes, sync and async",
            *_paragraph(f"grants: {grants.total():,}", grants),
            f"calls: {outcomes['ok']:,} done, {outcomes['fail']:,} not in time, {outcomes['info']:,} without an answer",
            *_paragraph(f"faults: {self.nemesis.done.total():,}", self.nemesis.done),
            f"violations: {len(self.violations)}, unexpected ends: {len(self.deaths)}",
            "from the first third of the time to the last:",
            *(f"  {what:<24} {a:>7,} → {b:>7,}  (may grow by {s:,})" for what, a, b, s in self.growth()),
        ]
        return "\n".join([*lines, *(wrong or ["nothing is wrong"])])


def _paragraph(head: str, counts: Counter[str]) -> list[str]:
    """A number, and what it is made of, in lines of a width that a terminal has."""
    parts = ", ".join(f"{what} {count:,}" for what, count in sorted(counts.items()))
    return [
        head,
        *textwrap.wrap(parts, 98, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False),
    ]


def main() -> int:
    """Run one soak; 1 if anything is wrong, with what is needed to look at it kept."""
    parser = argparse.ArgumentParser(prog="soak", description="Everything at once, for a while.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    if options.minutes <= 0:
        parser.error("--minutes is above 0")
    folder = Path(tempfile.mkdtemp(prefix="pawlock-soak-"))
    # A shell that runs it in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(f"seed {options.seed}; Ctrl-C ends it with the summary", flush=True)
    with Soak(folder, options.minutes * 60, options.seed) as soak:
        soak.run()
        print(soak.summary())
        wrong = soak.wrong()
    if wrong:
        print(f"journals: {folder}")
        return 1
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
