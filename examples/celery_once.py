"""A Celery task that is delivered twice at the same time runs once.

A broker may deliver a message again: a worker was slow to acknowledge it, or a schedule ran on two machines. Here the
queue is in memory and two workers are two threads, so that the program needs nothing else; the task is written as it
would be for any broker.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from celery import Celery

import pawlock

app = Celery("shop", broker="memory://", backend="cache+memory://")
app.conf.task_always_eager = True  # a call runs at once, in the thread that calls: the worker's part of it

client = pawlock.connect()
ran: list[str] = []
together = threading.Barrier(2)


@app.task  # type: ignore[untyped-decorator] # Celery has no type marks
@client.lock("report:{day}", min_hold=2)(on_contended="skip")
def report(day: str) -> str:
    """Write the report of a day; whoever finds it under way has nothing to do and returns None."""
    pawlock.current_lease().check()
    ran.append(day)
    time.sleep(0.2)
    return f"report of {day}"


def deliver(day: str) -> str | None:
    """Hand the message to a worker."""
    together.wait()
    result: str | None = report.delay(day).result
    return result


def main() -> None:
    """Deliver one message twice at the same time, then another one."""
    app.finalize()  # as a worker does at its start; Celery's own set-up of a task is not safe in two threads
    with ThreadPoolExecutor(2) as workers:
        results = list(workers.map(deliver, ["monday", "monday"]))
    print(f"ran {len(ran)} time, {results.count(None)} skipped, {report.delay('tuesday').result}")
    client.close()


if __name__ == "__main__":
    main()
