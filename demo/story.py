"""The two parts of the demo: without pawlock, and with it."""

import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from demo.board import Board, Row
from demo.crew import Crew, Member
from demo.shop import Books, Shop, create
from demo.worker import Task

_TRIES = 5
_TIMEOUT = 50.0
_VICTIM = 2
_SLEEPER = 4
_OVERTAKEN = 10
_MARGIN = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How big the demo is.

    Attributes:
        folder: Where its files go.
        pieces: In stock at the beginning.
        orders: To be worked through, for one piece each.
        workers: Processes.
        think: Seconds between reading the stock and writing it.
        ttl: Of the lock, in seconds.
    """

    folder: Path
    pieces: int = 200
    orders: int = 400
    workers: int = 5
    think: float = 0.01
    ttl: float = 2.0

    def tasks(self, shop: Path, url: str) -> list[Task]:
        """What each worker is told."""
        plain = Task(number=0, shop=str(shop), url=url, ttl=self.ttl, think=self.think)
        return [replace(plain, number=number) for number in range(1, self.workers + 1)]


def without_lock(setting: Setting, board: Board) -> int:
    """Part 1: sell until too much is sold.

    Returns:
        How many pieces were sold that did not exist; 0 when chance was kind every time.
    """
    board.title(f"1  Without a lock: {setting.workers} processes sell {setting.pieces} pieces")
    board.say("each reads the stock, works a little, and writes what it read minus one")
    for attempt in range(1, _TRIES + 1):
        path = setting.folder / f"without-{attempt}.db"
        create(path, pieces=setting.pieces, orders=setting.orders)
        with Crew(setting.tasks(path, ""), setting.folder / "errors") as crew:
            for _ in crew.events(timeout=_TIMEOUT):
                board.show(crew.members.values(), "no lock")
            board.rest()
        books = read_books(path)
        oversold = books.sold - setting.pieces
        if oversold > 0:
            board.say(
                f"sold {books.sold} of {setting.pieces} pieces: {oversold} customers paid for nothing",
                loud=True,
            )
            return oversold
        board.say(f"try {attempt}: nothing went wrong, by luck; again")
    return 0


@dataclass(slots=True)
class Witness:
    """What was seen in part 2.

    Attributes:
        fences: Of all grants, each with the moment when its worker told of it.
        victim: The worker that was killed as it held the lock.
        killed_at: When; 0.0 before.
        next_grant_at: When another was granted the lock after that; 0.0 before.
        put_back: Orders of the dead that went back on the list.
        sleeper: The worker that was stopped as it held the lock.
        stopped_at: When; 0.0 before.
        overtaken: Orders that others finished while it was stopped.
        stale: Its writes that the database refused.
        failed: Workers that ended badly by themselves.
    """

    fences: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    victim: Member | None = None
    killed_at: float = 0.0
    next_grant_at: float = 0.0
    put_back: int = 0
    sleeper: Member | None = None
    stopped_at: float = 0.0
    overtaken: int = 0
    stale: int = 0
    failed: int = 0

    @property
    def gap(self) -> float:
        """Seconds between the death of the holder and the next grant."""
        return self.next_grant_at - self.killed_at if self.next_grant_at else float("inf")

    @property
    def note(self) -> str:
        """What to say below the table."""
        if self.killed_at and not self.next_grant_at:
            return f"the holder is dead; its lease expires … {time.monotonic() - self.killed_at:.1f} s"
        if self.sleeper and self.sleeper.state == "stopped" and not self.overtaken:
            return f"the holder is stopped; its lease expires … {time.monotonic() - self.stopped_at:.1f} s"
        return f"{len(self.fences)} grants, fence {max((f for _, f in self.fences), default=0)}"


def with_lock(setting: Setting, url: str, board: Board) -> tuple[Books, Witness]:
    """Part 2: the same under a lock; a holder is killed, and another one is stopped and goes on too late.

    Returns:
        What the database says, and what was seen.
    """
    board.title(f"2  With pawlock: the same, under the lock `inventory:lamp` (TTL {setting.ttl:g} s)")
    path = setting.folder / "with.db"
    create(path, pieces=setting.pieces, orders=setting.orders)
    tasks = setting.tasks(path, url)
    share = max(2, setting.orders // setting.workers // 3)
    tasks[_VICTIM - 1] = replace(tasks[_VICTIM - 1], freeze_at=share)
    tasks[_SLEEPER - 1] = replace(tasks[_SLEEPER - 1], doze_at=share * 2)
    witness = Witness()
    with Crew(tasks, setting.folder / "errors") as crew, closing(Shop(path, 0)) as shop:
        for heard in crew.events(timeout=_TIMEOUT):
            if heard is not None:
                _Direction(crew, shop, witness, board).follow(*heard)
            board.show(crew.members.values(), witness.note)
        witness.failed = crew.failed()
        board.rest()
    return read_books(path), witness


@dataclass(frozen=True, slots=True)
class _Direction:
    """Does to the workers what the story wants, when they come to that point."""

    crew: Crew
    shop: Shop
    witness: Witness
    board: Board

    def follow(self, member: Member, event: dict[str, Any]) -> None:
        match event["event"]:
            case "granted":
                self._granted(member, event["at"], event["fence"])
            case "frozen":
                self._kill(member, event["fence"])
            case "dozing":
                self._stop(member, event["fence"])
            case "sold" | "refused":
                self._count(member, event["at"])
            case "stale":
                self.witness.stale += 1
                self.board.say(
                    f"w{member.number} writes too late: the database refuses its stale fencing token"
                )
            case _:
                pass

    def _granted(self, member: Member, at: float, fence: int) -> None:
        seen = self.witness
        seen.fences.append((at, fence))
        if seen.killed_at and not seen.next_grant_at and at > seen.killed_at:
            seen.next_grant_at = at
            self.board.say(
                f"w{member.number} was granted the lock {seen.gap:.2f} s later, with fence {fence}"
            )

    def _kill(self, member: Member, fence: int) -> None:
        seen = self.witness
        self.board.say(f"w{member.number} holds the lock with fence {fence}, in the middle of an order")
        seen.victim = member
        seen.killed_at = self.crew.kill(member)
        seen.put_back = self.shop.put_back(member.number)
        self.board.say(f"w{member.number} (pid {member.process.pid}) killed with SIGKILL as it held it")

    def _stop(self, member: Member, fence: int) -> None:
        self.witness.sleeper = member
        self.witness.stopped_at = time.monotonic()
        self.crew.stop(member)
        self.board.say(f"w{member.number} stopped with SIGSTOP as it held the lock with fence {fence}")

    def _count(self, member: Member, at: float) -> None:
        seen = self.witness
        if seen.sleeper is None or member is seen.sleeper or at < seen.stopped_at:
            return
        seen.overtaken += 1
        if seen.overtaken == _OVERTAKEN:
            self.board.say(
                f"{_OVERTAKEN} orders by others later, w{seen.sleeper.number} resumes, unaware of its pause"
            )
            self.crew.wake(seen.sleeper)


def read_books(path: Path) -> Books:
    """Add up a shop's database."""
    with closing(Shop(path, 0)) as shop:
        return shop.books()


def verdict(setting: Setting, oversold: int, books: Books, witness: Witness) -> list[Row]:
    """Judge both parts; each row says what should be and what is."""
    rising = all(a < b for a, b in pairwise(books.fences))
    granted = [fence for _, fence in sorted(witness.fences)]
    granted_rising = all(a < b for a, b in pairwise(granted))
    killed = witness.victim is not None and witness.victim.state == "killed"
    latest = setting.ttl + _MARGIN
    return [
        ("without a lock: oversold", "more than 0", str(oversold), oversold > 0),
        ("with pawlock: sold", str(setting.pieces), str(books.sold), books.sold == setting.pieces),
        _row("left in stock", setting.pieces - min(setting.pieces, setting.orders), books.left),
        _row("rejected: sold out", max(0, setting.orders - setting.pieces), books.refused),
        _row("orders unfinished", 0, books.open),
        _row("writes", setting.orders, len(books.fences)),
        ("fences of the writes", "rising", "rising" if rising else "NOT rising", rising),
        ("fences of the grants", "rising", "rising" if granted_rising else "NOT rising", granted_rising),
        ("a holder was killed", "yes", "yes" if killed else "no", killed),
        ("next grant after that", f"within {latest:g} s", f"{witness.gap:.2f} s", witness.gap <= latest),
        _row("its order retried", 1, witness.put_back),
        _row("late writes refused", 1, witness.stale),
        _row("workers that failed", 0, witness.failed),
    ]


def _row(what: str, wanted: int, found: int) -> Row:
    return what, str(wanted), str(found), wanted == found
