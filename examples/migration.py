"""Three hosts start at once, and one of them migrates the database; the others wait until it is done."""

import multiprocessing
import sqlite3
import tempfile
from pathlib import Path

import pawlock

VERSION = 2


def migrate(database: sqlite3.Connection) -> None:
    """Bring the schema from version 1 to 2, in one transaction."""
    with database:
        database.execute("ALTER TABLE orders ADD COLUMN paid INTEGER NOT NULL DEFAULT 0")
        database.execute(f"PRAGMA user_version = {VERSION}")


def start(path: str) -> bool:
    """Start a host: True if it was the one that migrated."""
    database = sqlite3.connect(path)
    try:
        # Every host waits here for the one that came first. It then looks again: the work may be done by now.
        with pawlock.connect() as client, client.lock("migrate:shop", timeout=60) as lease:
            if database.execute("PRAGMA user_version").fetchone() == (VERSION,):
                return False
            lease.check()  # right before what must not be done twice
            migrate(database)
            return True
    finally:
        database.close()


def main() -> None:
    """Start three processes, each as if it were a host of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "shop.db"))
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        database.execute("PRAGMA user_version = 1")
        database.close()
        with multiprocessing.get_context("spawn").Pool(3) as hosts:
            migrated = hosts.map(start, [path] * 3, chunksize=1)
            hosts.close()
            hosts.join()
    print(f"{sum(migrated)} of {len(migrated)} hosts migrated")


if __name__ == "__main__":
    main()
