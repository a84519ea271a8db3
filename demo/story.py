"""The two parts of the demo: without pawl, and with it."""

import time
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from demo.board import Board, Row
from demo.crew import Crew, Member
from demo.shop import Books, Shop, create
from demo.worker import Task

_TRIES = 5
_TIMEOUT = 50.0
_VICTIM = 2
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
                board.show(crew.members.values(), "nobody holds anything")
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
        fences: Of all grants, in the order of the workers' clocks.
        frozen: The worker that sat on the lock, once it did.
        killed_at: When it was killed; 0.0 before.
        next_grant_at: When another was granted the lock after that; 0.0 before.
        put_back: Orders of the dead that went back on the list.
    """

    fences: list[tuple[float, int]]
    frozen: Member | None = None
    killed_at: float = 0.0
    next_grant_at: float = 0.0
    put_back: int = 0

    @property
    def gap(self) -> float:
        """Seconds between the death of the holder and the next grant."""
        return self.next_grant_at - self.killed_at if self.next_grant_at else float("inf")


def with_lock(setting: Setting, url: str, board: Board) -> tuple[Books, Witness]:
    """Part 2: the same under a lock, and a holder is killed.

    Returns:
        What the database says, and what was seen.
    """
    board.title(f"2  With pawl: the same, under the lock `inventory:lamp` (ttl {setting.ttl:g} s)")
    path = setting.folder / "with.db"
    create(path, pieces=setting.pieces, orders=setting.orders)
    tasks = setting.tasks(path, url)
    share = max(2, setting.orders // setting.workers // 3)
    tasks[_VICTIM - 1] = replace(tasks[_VICTIM - 1], freeze_at=share)
    witness = Witness(fences=[])
    with Crew(tasks, setting.folder / "errors") as crew, closing(Shop(path, 0)) as shop:
        for heard in crew.events(timeout=_TIMEOUT):
            if heard is not None:
                _watch(heard[0], heard[1], witness, board)
                if witness.frozen is heard[0] and not witness.killed_at:
                    witness.killed_at = crew.kill(heard[0])
                    witness.put_back = shop.put_back(heard[0].number)
                    board.say(
                        f"w{heard[0].number} (pid {heard[0].process.pid}) killed with SIGKILL as it held it"
                    )
            board.show(crew.members.values(), _note(witness))
        board.rest()
    return read_books(path), witness


def _watch(member: Member, event: dict[str, object], witness: Witness, board: Board) -> None:
    if event["event"] == "granted":
        at, fence = event["at"], event["fence"]
        assert isinstance(at, float) and isinstance(fence, int)  # noqa: S101, PT018
        witness.fences.append((at, fence))
        if witness.killed_at and not witness.next_grant_at and at > witness.killed_at:
            witness.next_grant_at = at
            board.say(f"w{member.number} was granted the lock {witness.gap:.2f} s later, with fence {fence}")
    elif event["event"] == "frozen":
        witness.frozen = member
        board.say(f"w{member.number} holds the lock with fence {event['fence']}, in the middle of an order")


def _note(witness: Witness) -> str:
    if witness.killed_at and not witness.next_grant_at:
        return f"the holder is dead; its lease runs out … {time.monotonic() - witness.killed_at:.1f} s"
    return f"{len(witness.fences)} grants, fence {max((f for _, f in witness.fences), default=0)}"


def read_books(path: Path) -> Books:
    """Add up a shop's database."""
    with closing(Shop(path, 0)) as shop:
        return shop.books()


def verdict(setting: Setting, oversold: int, books: Books, witness: Witness) -> list[Row]:
    """Judge both parts; each row says what should be and what is."""
    rising = all(a < b for a, b in pairwise(books.fences))
    granted = [fence for _, fence in sorted(witness.fences)]
    granted_rising = all(a < b for a, b in pairwise(granted))
    killed = witness.frozen is not None and witness.frozen.state == "killed"
    latest = setting.ttl + _MARGIN
    return [
        ("without a lock: oversold", "more than 0", str(oversold), oversold > 0),
        ("with pawl: sold", str(setting.pieces), str(books.sold), books.sold == setting.pieces),
        _row("left in stock", setting.pieces - min(setting.pieces, setting.orders), books.left),
        _row("told sold out", max(0, setting.orders - setting.pieces), books.refused),
        _row("orders unfinished", 0, books.open),
        _row("writes", setting.orders, len(books.fences)),
        ("fences of the writes", "rising", "rising" if rising else "NOT rising", rising),
        ("fences of the grants", "rising", "rising" if granted_rising else "NOT rising", granted_rising),
        ("a holder was killed", "yes", "yes" if killed else "no", killed),
        ("next grant after that", f"within {latest:g} s", f"{witness.gap:.2f} s", witness.gap <= latest),
        ("its order went back", "1", str(witness.put_back), witness.put_back == 1),
    ]


def _row(what: str, wanted: int, found: int) -> Row:
    return what, str(wanted), str(found), wanted == found
