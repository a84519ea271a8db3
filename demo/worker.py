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
from types import FrameType

from demo.shop import PRODUCT, Shop, StaleWrite

_IDLE = 0.05
_LONG = 60.0


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
        doze_at: The grant at which it waits to be stopped and to go on, with the lock; 0 for never.
    """

    number: int
    shop: str
    url: str
    ttl: float
    think: float
    freeze_at: int = 0
    doze_at: int = 0

    def dump(self) -> str:
        """Write it as the argument of a worker."""
        return json.dumps(asdict(self))


def tell(event: str, **values: object) -> None:
    """Say to the one who watches what has just happened."""
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic(), **values}) + "\n")
    sys.stdout.flush()


def work_unlocked(task: Task, shop: Shop) -> None:
    """Read, think, write, as it is done everywhere where nobody thought of the others."""
    while (order := shop.next_order()) is not None:
        pieces = shop.pieces()
        time.sleep(task.think * random.uniform(0.5, 1.5))
        tell("sold" if shop.sell(order, pieces, 0) else "refused", order=order)


def work_locked(task: Task, shop: Shop) -> None:
    """Do the same under a lock, and give its fence to the database."""
    import pawlock

    order: int | None = None
    grants = 0
    with pawlock.connect(task.url, ttl=task.ttl) as client:
        lock = client.lock(f"inventory:{PRODUCT}")
        while shop.unfinished():
            order = order or shop.next_order()
            if order is None:  # the last ones are with others, one of whom may die
                time.sleep(_IDLE)
                continue
            try:
                with lock.acquire(timeout=30) as lease:
                    grants += 1
                    tell("granted", fence=lease.fence)
                    _sell(task, shop, order, lease.fence, grants)
                order = None
            except StaleWrite:
                tell("stale", order=order)  # nothing was written; the order is tried again
            except pawlock.LeaseLost:
                order = None  # lost after the write, which the database took, so nobody came in between


def _sell(task: Task, shop: Shop, order: int, fence: int, grants: int) -> None:
    shop.claim(fence)
    pieces = shop.pieces()
    if grants == task.freeze_at:
        tell("frozen", fence=fence)
        time.sleep(_LONG)
    if grants == task.doze_at:
        _doze(fence)
    time.sleep(task.think * random.uniform(0.5, 1.5))
    tell("sold" if shop.sell(order, pieces, fence) else "refused", order=order)


def _doze(fence: int) -> None:
    """Wait until we were stopped and go on again."""
    awake = threading.Event()

    def wake(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # a handler's signature
        awake.set()

    signal.signal(signal.SIGCONT, wake)
    tell("dozing", fence=fence)
    give_up = time.monotonic() + _LONG
    # In short sleeps: the signal may come to another thread, and its handler runs when this one wakes up.
    while not awake.wait(_IDLE) and time.monotonic() < give_up:
        pass


def leave_with_parent() -> None:
    """End when the demo does, however it does: our standard input is a pipe that it holds."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)  # past `sys.stdin`, whose lock would be held at our end
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    """Work as the argument says."""
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
