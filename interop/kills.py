"""Processes of several kinds are killed while they share a counter, and others take their place.

``python -m interop.kills --seconds 60 --mix pawlock,pawlock,redsync,redsync`` prints JSON and ends
with 1 if two were inside at once, an update was lost, or a name stayed free longer than the TTL of a dead holder allows.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from interop.counting import (
    COUNTER,
    SPARE,
    arguments,
    begin,
    chosen,
    name_of,
    on_server,
    show,
    value_of,
)
from interop.judge import Part, Verdict, judge
from interop.kinds import Kind, common_key, wire_of
from interop.line import Driver

SLACK = 2.0
"""Seconds that the name may stay free while one waits: pollers sleep, and a new process has to start."""


@dataclass(slots=True)
class Running:
    """One that takes part now.

    Attributes:
        name: What it is called, with how many stood in its place before.
        driver: Its process.
        start: When it was asked to count.
    """

    name: str
    driver: Driver
    start: float


@dataclass(slots=True)
class Round:
    """A run with kills: who counts now, and who did."""

    url: str
    kinds: Sequence[Kind]
    key: str
    ttl: float
    hold: float
    until: float
    environ: Mapping[str, str]
    running: list[Running] = field(default_factory=list[Running])
    parts: list[Part] = field(default_factory=list[Part])
    killed: Counter[str] = field(default_factory=Counter[str])
    holding: Counter[str] = field(default_factory=Counter[str])

    def begin(self, index: int) -> Running:
        """Start the next process in a place."""
        number = sum(part.name.startswith(name_of(self.kinds, index) + "/") for part in self.parts)
        # A registry of Spring has one TTL for all of its locks; the note that the JVM prints goes to stderr.
        environ = dict(self.environ)
        if self.kinds[index].part == "java":
            environ["JAVA_TOOL_OPTIONS"] = f"-Dttl={round(self.ttl * 1000)}"
        driver = Driver(self.kinds[index], self.url, **environ)
        try:
            driver.ready()
        except BaseException:
            driver.kill()
            raise
        now = time.monotonic()
        left = max(0.5, self.until - now)
        driver.send("count", self.key, round(self.ttl * 1000), left, COUNTER, round(self.hold * 1000))
        return Running(f"{name_of(self.kinds, index)}/{number + 1}", driver, now)

    def end(self, index: int, *, kill: bool) -> None:
        """Kill the process in a place, or wait until it has counted to the end; and note what it reported."""
        one = self.running[index]
        if not kill:
            one.driver.reply(self.until - time.monotonic() + SPARE)
        # Before the kill: what it gave back in its last moment, another may have by the time the process is gone.
        now = time.monotonic()
        one.driver.kill()
        kind, driver = one.driver.kind.name, one.driver
        queues = driver.kind.queues
        part = Part(one.name, kind, driver.pid, driver.events, one.start, now, hold=self.hold, queues=queues)
        part.killed = kill
        self.parts.append(part)
        if kill:
            self.killed[kind] += 1
            self.holding[kind] += bool(one.driver.events) and one.driver.events[-1]["event"] == "held"


def run(
    url: str,
    kinds: Sequence[Kind],
    seconds: float,
    ttl: float,
    hold: float,
    seed: str,
    *,
    counter_at: str = "",
) -> tuple[Verdict, Round]:
    """Count for some seconds, and kill one of them each second or so."""
    chance = random.Random(seed)
    counter_at = counter_at or url
    begin(counter_at)
    environ = {"COUNTER_URL": counter_at, **wire_of(kinds)}
    round_ = Round(url, kinds, common_key(kinds, "kills"), ttl, hold, time.monotonic() + seconds, environ)
    try:
        round_.running = [round_.begin(index) for index in range(len(kinds))]
        # In turn, so that each kind has its share of them; the moment is by chance.
        turn = 0
        while time.monotonic() < round_.until - 1:
            time.sleep(chance.uniform(0.5, 1.5))
            index = turn % len(kinds)
            turn += 1
            round_.end(index, kill=True)
            round_.running[index] = round_.begin(index)
        for index in range(len(kinds)):
            round_.end(index, kill=False)
    finally:
        for one in round_.running:
            if one.driver.pid not in {part.pid for part in round_.parts}:
                one.driver.kill()
    longest = max([ttl, *(kind.ttl for kind in kinds)])
    # Behind a dead holder may stand some that died as waiters, all but the one that waits: what each was granted, and
    # never told of, lasts a TTL too.
    dead = max(1, sum(kind.queues for kind in kinds) - 2)
    slack = SLACK + dead * longest
    return judge(round_.parts, round_.key, longest, value_of(counter_at), slack=slack), round_


def main() -> int:
    parser = arguments("Processes are killed while they share a counter.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--ttl", type=float, default=1.5, help="seconds")
    parser.add_argument(
        "--hold", type=float, default=0.02, help="seconds between reading and writing the counter"
    )
    parser.add_argument("--seed", default=os.environ.get("PAWLOCK_SEED", str(time.time_ns())))
    options = parser.parse_args()
    kinds = chosen(options.mix, options.driver)
    with on_server(options) as (url, counter_at):
        verdict, done = run(
            url, kinds, options.seconds, options.ttl, options.hold, options.seed, counter_at=counter_at
        )
    result = verdict.as_json()
    # Of one that lived for a second, no share can be told.
    del result["starved"]
    head = {"mix": options.mix, "seconds": options.seconds, "seed": options.seed}
    show({**head, "killed": dict(done.killed), "killed_while_holding": dict(done.holding), **result})
    return 0 if verdict.safe else 1


if __name__ == "__main__":
    sys.exit(main())
