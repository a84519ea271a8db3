"""A payment that is asked for several times is made once, and every caller gets the same answer."""

import sqlite3
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pawlock

charged: list[int] = []


def charge(amount: int) -> str:
    """Ask the bank, which takes a while and knows nothing of repeats."""
    time.sleep(0.1)
    charged.append(amount)
    return uuid.uuid4().hex


def pay(client: pawlock.Client, path: str, key: str, amount: int) -> tuple[int, str]:
    """Serve ``POST /payments`` with an ``Idempotency-Key``: the status, and the receipt or what was wrong.

    The lock keeps repeats apart while the first one is under way; the table answers those that come later. A crash
    between the bank and the table is the bank's to settle: send it the key too, if it takes one.
    """
    database = sqlite3.connect(path, timeout=30)
    try:
        with client.lock(f"payment:{key}", timeout=5) as lease:
            known = database.execute("SELECT amount, receipt FROM payments WHERE key = ?", (key,)).fetchone()
            if known:
                return (200, known[1]) if known[0] == amount else (422, "this key paid another amount")
            lease.check()
            receipt = charge(amount)
            with database:
                # The key is unique: should two ever get here, the second insert fails.
                database.execute("INSERT INTO payments VALUES (?, ?, ?)", (key, amount, receipt))
            return 201, receipt
    except pawlock.AcquireTimeout:
        return 409, "this payment is under way; ask again"
    finally:
        database.close()


def main() -> None:
    """Send one payment five times at once, as an impatient client does."""
    with tempfile.TemporaryDirectory() as folder, pawlock.connect() as client:
        path = str(Path(folder, "bank.db"))
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE payments (key TEXT PRIMARY KEY, amount INTEGER, receipt TEXT)")
        database.close()
        with ThreadPoolExecutor(5) as callers:
            answers = list(callers.map(lambda _: pay(client, path, "key-1", 995), range(5)))
        statuses = sorted(status for status, _ in answers)
        receipts = {receipt for _, receipt in answers}
        other, _ = pay(client, path, "key-1", 1)
        print(f"statuses {statuses}, {len(receipts)} receipt, charged {charged}, another amount {other}")


if __name__ == "__main__":
    main()
