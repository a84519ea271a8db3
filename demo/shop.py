"""The shop's database: one SQLite file with a stock, the orders for it, and a journal of what was written."""

import contextlib
import sqlite3
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

PRODUCT = "lamp"

_SCHEMA = """
CREATE TABLE stock (product TEXT PRIMARY KEY, pieces INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL DEFAULT 'open', worker INTEGER);
CREATE TABLE journal (id INTEGER PRIMARY KEY AUTOINCREMENT, fence INTEGER, worker INTEGER, pieces INTEGER);
"""


class StaleWrite(Exception):
    """The database has seen a higher fence than this writer's: somebody else has had the lock since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What the database says at the end.

    Attributes:
        sold: Orders that got a piece.
        refused: Orders that were told "sold out".
        open: Orders that nobody finished.
        left: Pieces the stock says are left.
        fences: The fence of each write, in the order of the writes.
    """

    sold: int
    refused: int
    open: int
    left: int
    fences: tuple[int, ...]


def create(path: Path, *, pieces: int, orders: int) -> None:
    """Make a new shop in a file that does not exist yet."""
    with contextlib.closing(_connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(_SCHEMA)
        db.execute("INSERT INTO stock VALUES (?, ?, 0)", (PRODUCT, pieces))
        db.executemany("INSERT INTO orders (id) VALUES (?)", ((number,) for number in range(1, orders + 1)))


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute(
        "PRAGMA synchronous = OFF"
    )  # the demo survives a killed process; it need not survive a power cut
    return db


class Shop:
    """One worker's view of the shop."""

    def __init__(self, path: Path, worker: int) -> None:
        self._db = _connect(path)
        self._worker = worker

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def next_order(self) -> int | None:
        """Take an order from the list, so that no other worker takes it; None when there is none."""
        row = self._db.execute(
            "UPDATE orders SET worker = ? WHERE id = (SELECT min(id) FROM orders WHERE worker IS NULL) "
            "RETURNING id",
            (self._worker,),
        ).fetchall()
        return row[0][0] if row else None

    def unfinished(self) -> int:
        """Count the orders that are neither sold nor refused."""
        return int(self._db.execute("SELECT count(*) FROM orders WHERE state = 'open'").fetchone()[0])

    def claim(self, fence: int) -> None:
        """Write the fence before anything is read: from then on, earlier holders cannot change what is read.

        Args:
            fence: The lease's fence.

        Raises:
            StaleWrite: a holder with a higher fence was there.
        """
        claimed = self._db.execute(
            "UPDATE stock SET fence = ? WHERE product = ? AND fence <= ?", (fence, PRODUCT, fence)
        )
        if claimed.rowcount != 1:
            raise StaleWrite(f"fence {fence} is older than the one of the last holder")

    def pieces(self) -> int:
        """Read how many pieces there are: the first half of read-modify-write."""
        return int(self._db.execute("SELECT pieces FROM stock WHERE product = ?", (PRODUCT,)).fetchone()[0])

    def sell(self, order: int, pieces_read: int, fence: int) -> bool:
        """Write what follows from what was read: the second half. All of it happens, or nothing.

        Args:
            order: The order to finish.
            pieces_read: What `pieces()` said before; not looked up again, which is the point.
            fence: The lease's fence; 0 without a lock.

        Returns:
            True when the order got a piece, False when it was told "sold out".

        Raises:
            StaleWrite: a holder with a higher fence has been there since.
        """
        left = max(0, pieces_read - 1)
        state = "sold" if pieces_read > 0 else "refused"
        with self._transaction():
            written = self._db.execute(
                "UPDATE stock SET pieces = ?, fence = ? WHERE product = ? AND fence <= ?",
                (left, fence, PRODUCT, fence),
            )
            if written.rowcount != 1:
                raise StaleWrite(f"fence {fence} is older than the one of the last holder")
            self._db.execute("UPDATE orders SET state = ? WHERE id = ?", (state, order))
            self._db.execute(
                "INSERT INTO journal (fence, worker, pieces) VALUES (?, ?, ?)", (fence, self._worker, left)
            )
        return state == "sold"

    def put_back(self, worker: int) -> int:
        """Put the unfinished orders of a dead worker back on the list; how many there were."""
        return self._db.execute(
            "UPDATE orders SET worker = NULL WHERE worker = ? AND state = 'open'", (worker,)
        ).rowcount

    def books(self) -> Books:
        """Add everything up."""
        count = dict(self._db.execute("SELECT state, count(*) FROM orders GROUP BY state").fetchall())
        fences = self._db.execute("SELECT fence FROM journal ORDER BY id").fetchall()
        return Books(
            sold=count.get("sold", 0),
            refused=count.get("refused", 0),
            open=count.get("open", 0),
            left=self.pieces(),
            fences=tuple(row[0] for row in fences),
        )
