"""Clients of several libraries lock one key and count what it protects."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from interop.judge import Part, Verdict, judge
from interop.kinds import KINDS, Kind, common_key, missing, register, wire_of
from interop.line import drivers
from tests.support.groups import ClusterGroup
from tests.support.servers import Server, available

__all__ = ["COUNTER", "arguments", "begin", "chosen", "count", "name_of", "on_server", "show", "value_of"]

COUNTER = "counted"
SPARE = 60.0
"""Seconds more than the run that the last reply may take: a waiter ends its wait first."""


def count(
    url: str,
    kinds: Sequence[Kind],
    seconds: float,
    *,
    ttl: float = 5.0,
    hold: float = 0.002,
    counter_at: str = "",
) -> Verdict:
    """Have one process of each kind count for some seconds, and judge it.

    Args:
        url: A server, whose keys are theirs alone.
        kinds: Who takes part; one that stands there twice is two processes.
        seconds: For how long.
        ttl: Seconds that each lock is asked for.
        hold: Seconds between reading the counter and writing it.
        counter_at: The server of the counter; default: that of the lock.
    """
    counter_at = counter_at or url
    key = common_key(kinds, "mixed")
    names = [name_of(kinds, index) for index in range(len(kinds))]
    begin(counter_at)
    with drivers(kinds, url, COUNTER_URL=counter_at, **wire_of(kinds)) as running:
        start = time.monotonic()
        for driver in running:
            driver.send("count", key, round(ttl * 1000), seconds, COUNTER, round(hold * 1000))
        for driver in running:
            driver.reply(seconds + SPARE)
        parts = [
            Part(
                name,
                one.kind.name,
                one.pid,
                one.events,
                start,
                start + seconds,
                least=one.kind.least,
                queues=one.kind.queues,
            )
            for name, one in zip(names, running, strict=True)
        ]
        return judge(parts, key, ttl, value_of(counter_at))


def name_of(kinds: Sequence[Kind], index: int) -> str:
    """``pawlock-1`` for the first of pawlock, and so on."""
    return f"{kinds[index].name}-{sum(kind is kinds[index] for kind in kinds[: index + 1])}"


def begin(url: str) -> None:
    """Set the counter to nothing, with nobody inside."""
    with redis.Redis.from_url(url) as plain:
        plain.delete(COUNTER, f"inside:{COUNTER}")


def value_of(url: str) -> int:
    """What the counter has come to."""
    with redis.Redis.from_url(url) as plain:
        return int(plain.get(COUNTER) or 0)


def arguments(text: str, mix: str = "pawlock,pawlock,redis-py,redis-py") -> argparse.ArgumentParser:
    """The options that the commands have in common."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--mix", default=mix, help=f"kinds, separated by commas; of {', '.join(KINDS)}")
    parser.add_argument(
        "--driver", action="append", default=[], help="one more kind: NAME=COMMAND or NAME@PREFIX=COMMAND"
    )
    parser.add_argument(
        "--url", default="", help="a server whose keys may be deleted; default: one is started"
    )
    parser.add_argument(
        "--flavour", default="valkey", choices=("valkey", "redis"), help="which one is started"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="start a cluster of three nodes, and a server for the counter"
    )
    return parser


def chosen(mix: str, more: Sequence[str] = ()) -> list[Kind]:
    """The kinds of a mix.

    Raises:
        SystemExit: One is unknown, or cannot run on this machine.
    """
    for definition in more:
        register(definition)
    unknown = [name for name in mix.split(",") if name not in KINDS]
    if unknown:
        raise SystemExit(f"no such kind: {', '.join(unknown)} (there are {', '.join(KINDS)})")
    kinds = [KINDS[name] for name in mix.split(",")]
    for kind in kinds:
        if reason := missing(kind):
            raise SystemExit(f"{kind.name}: {reason}")
    return kinds


@contextmanager
def on_server(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The URL of the locks and of the counter: what was given, or servers that run as long as the block."""
    if options.url:
        yield options.url, options.url
        return
    if reason := available(options.flavour):
        raise SystemExit(reason)
    with Server(options.flavour) as server:
        if options.cluster:
            with ClusterGroup(options.flavour) as cluster:
                yield cluster.url, server.url
        else:
            yield server.url, server.url


def show(result: dict[str, Any]) -> None:
    """Print a result as JSON."""
    json.dump(result, sys.stdout, indent=1)
    print(flush=True)
