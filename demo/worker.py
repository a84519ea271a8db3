"""One seller: a process of its own that works through the orders, with the lock or without it."""

import json
import os
import random
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from demo.shop import PRODUCT, Shop

_IDLE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a worker is told, as JSON in its only argument.

    Attributes:
        number: Which worker it is.
        shop: The database file.
        url: The server of the locks; "" to work without.
        ttl: Of the lock, in seconds.
        think: Seconds of work between reading the stock and writing it.
        freeze_at: The grant at which it sits on the lock, so that it can be killed there; 0 for never.
    """

    number: int
    shop: str
    url: str
    ttl: float
    think: float
    freeze_at: int = 0

    def dump(self) -> str:
        """Write it as the argument of a worker."""
        return json.dumps(asdict(self))


def tell(event: str, **values: object) -> None:
    """Say to the one who watches what has just happened."""
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic(), **values}) + "\n")
    sys.stdout.flush()


def work_unlocked(task: Task, shop: Shop) -> None:
    """Read, think, write, as it is done everywhere where nobody thought of the others."""
    rng = random.Random(task.number)
    while (order := shop.next_order()) is not None:
        pieces = shop.pieces()
        time.sleep(task.think * rng.uniform(0.5, 1.5))
        tell("sold" if shop.sell(order, pieces, 0) else "refused", order=order)


def work_locked(task: Task, shop: Shop) -> None:
    """Do the same under a lock, and give its fence to the database."""
    import pawl

    rng = random.Random(task.number)
    grants = 0
    with pawl.connect(task.url, ttl=task.ttl) as client:
        lock = client.lock(f"inventory:{PRODUCT}")
        while shop.unfinished():
            order = shop.next_order()
            if order is None:  # the last ones are with others, one of whom may die
                time.sleep(_IDLE)
                continue
            with lock.acquire(timeout=30) as lease:
                grants += 1
                tell("granted", fence=lease.fence)
                pieces = shop.pieces()
                if grants == task.freeze_at:
                    tell("frozen", fence=lease.fence, order=order)
                    time.sleep(60)
                time.sleep(task.think * rng.uniform(0.5, 1.5))
                tell("sold" if shop.sell(order, pieces, lease.fence) else "refused", order=order)


def leave_with_parent() -> None:
    """End when the demo does, however it does: our standard input is a pipe that it holds."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    """Work as the argument says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the demo, which ends us in good order
    task = Task(**json.loads(sys.argv[1]))
    leave_with_parent()
    shop = Shop(Path(task.shop), task.number)
    try:
        (work_locked if task.url else work_unlocked)(task, shop)
    except BrokenPipeError:
        return 1
    finally:
        shop.close()
    tell("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
