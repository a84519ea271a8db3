"""Sell what is in stock and no more, also when a seller is paused past its lease: claim the row, read it, write it."""

import sqlite3
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pawlock
from pawlock.fencing import FencedTable

STOCK = FencedTable("stock", key="product", dialect="sqlite")


def left_of(database: sqlite3.Connection, product: str) -> int:
    """How many there are."""
    (left,) = database.execute('SELECT "left" FROM stock WHERE product = ?', (product,)).fetchone()
    return int(left)


def sell(client: pawlock.Client, path: str, product: str) -> bool:
    """Sell one: False if there is none left."""
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    try:
        with client.lock(f"stock:{product}", timeout=30) as lease:
            STOCK.claim(
                database.cursor(), lease, product=product
            )  # before the read: from here nobody late gets in
            left = left_of(database, product)
            if left == 0:
                return False
            STOCK.update(database.cursor(), lease, product=product, left=left - 1)
            return True
    finally:
        database.close()


def sell_late(client: pawlock.Client, path: str, product: str) -> bool:
    """Sell as a process does that read the stock and then slept for longer than its lease."""
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    try:
        with client.lock(f"stock:{product}", ttl=0.2, renew=False, on_exit="warn") as lease:
            STOCK.claim(database.cursor(), lease, product=product)
            left = left_of(database, product)
            time.sleep(0.5)  # its lease ends here, and another one sells
            with pawlock.connect() as other:
                sell(other, path, product)
            STOCK.update(database.cursor(), lease, product=product, left=left - 1)
            return True
    except pawlock.StaleFence as error:
        print("refused:", error)
        return False
    finally:
        database.close()


def main() -> None:
    """Let twenty buyers come for ten packets of tea."""
    with tempfile.TemporaryDirectory() as folder, pawlock.connect() as client:
        path = str(Path(folder, "shop.db"))
        database = sqlite3.connect(path)
        database.execute('CREATE TABLE stock (product TEXT PRIMARY KEY, "left" INTEGER)')
        database.execute(STOCK.column_statement)
        database.execute("INSERT INTO stock VALUES ('tea', 12, 0)")
        database.commit()
        late = sell_late(client, path, "tea")
        with ThreadPoolExecutor(8) as buyers:
            sold = sum(buyers.map(lambda _: sell(client, path, "tea"), range(20)))
        print(f"late {late}, sold {sold} of 11, left {left_of(database, 'tea')}")
        database.close()


if __name__ == "__main__":
    main()
