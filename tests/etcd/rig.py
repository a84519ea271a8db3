"""What the tests on etcd share: who stands in a name's order, another process that holds, what has become of a wait."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.contract.edges.helpers import Script
from tests.faults.rig import until
from tests.support.etcd import Etcd
from tests.support.etcd_wire import EtcdError, Pair
from tests.support.pace import pace

__all__ = ["AGREED", "Holder", "Start", "guard", "order", "queue", "slow", "stand", "written"]

AGREED = 2.0
"""Seconds within which etcd takes away a lease that has ended: it looks every half second, and a majority agrees."""


def order(etcd: Etcd, name: str = "n", key: str = "pawlock:{}") -> list[Pair]:
    """Who holds a name and waits for it, in the order of their coming."""
    with etcd.wire() as wire:
        return wire.range(f"{key.format(name)}\0")


def queue(etcd: Etcd, name: str = "n") -> int:
    """How many hold a name and wait for it."""
    try:
        return len(order(etcd, name))
    except (OSError, EtcdError):
        return 0


def stand(etcd: Etcd, number: int, name: str = "n") -> None:
    """Wait until so many hold a name and wait for it."""
    until(lambda: queue(etcd, name) == number, what=f"{number} in the order of {name}")


_HOLDER = """
    import json, sqlite3, sys
    import pawlock

    url, name, ttl, database = sys.argv[1:]
    client = pawlock.connect(url)
    lease = client.lock(name, ttl=float(ttl)).acquire(20)
    print(json.dumps({"fence": lease.fence, "token": lease.token}), flush=True)
    for line in sys.stdin:
        said = {}
        if line.strip() == "write":
            with sqlite3.connect(database, timeout=20) as db:
                said["rows"] = db.execute("UPDATE guarded SET fence = :f WHERE fence <= :f", {"f": lease.fence}).rowcount
        elif line.strip() == "detach":
            said["ticket"] = lease.detach()
        said["state"] = str(lease.state)
        print(json.dumps(said), flush=True)
"""


class Holder(Script):
    """Another process that holds a lock until it is ended.

    Args:
        url: The servers.
        name: The lock.
        ttl: Of its lease.
        database: What it writes to; see ``guard``.
    """

    def __init__(self, url: str, name: str = "n", ttl: float = 2.0, database: str = "") -> None:
        super().__init__(_HOLDER, url, name, str(ttl), database)
        self.fence: int = 0
        self.token: str = ""

    def held(self) -> Self:
        """Wait until it holds."""
        found = json.loads(self.line())
        self.fence, self.token = int(found["fence"]), str(found["token"])
        return self

    def ask(self, what: str = "state") -> dict[str, Any]:
        """Have it ``write`` under its fence or ``detach``, and say how its lease is."""
        self.say(what)
        found: dict[str, Any] = json.loads(self.line())
        return found

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, what)


class Start:
    """Starts holders, and ends them with the test."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __call__(self, *args: Any, **options: Any) -> Holder:
        return self._stack.enter_context(Holder(*args, **options))


def guard(folder: Path) -> str:
    """A database whose one row takes no write of a fence below that of the last."""
    path = str(folder / "guarded.db")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE guarded (fence INTEGER)")
        db.execute("INSERT INTO guarded VALUES (0)")
    return path


def written(database: str, fence: int) -> int:
    """Write under a fence; how many rows took it."""
    with contextlib.closing(sqlite3.connect(database, timeout=20)) as db, db:
        return db.execute("UPDATE guarded SET fence = :f WHERE fence <= :f", {"f": fence}).rowcount


def slow(seconds: float) -> float:
    """A bound on the wall clock, on this machine now."""
    return seconds * pace()
