"""What checkers say of an ``acquire()`` of asyncio that nobody awaits, and of one that is taken for its result.

Never run, as ``api.py``. An error that a checker stops to report is an ignore comment that is not needed: an error too.
Pyright's ``reportUnusedCoroutine`` knows coroutines by the name of their class, and so only ``try_acquire()``.
"""

# mypy: enable-error-code="unused-awaitable", no-warn-unreachable
# pyright: reportUnusedCallResult=true, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import pawlock


def forgotten(client: pawlock.AsyncClient) -> None:
    client.lock("x").acquire()  # type: ignore[unused-awaitable]
    client.semaphore("x", permits=2).acquire()  # type: ignore[unused-awaitable]
    client.rwlock("x").write.acquire()  # type: ignore[unused-awaitable]
    client.multi_lock(["x"]).acquire()  # type: ignore[unused-awaitable]
    client.election("x").campaign()  # type: ignore[unused-awaitable]
    client.lock("x").try_acquire()  # type: ignore[unused-coroutine]


def taken_for_its_result(client: pawlock.AsyncClient) -> None:
    if client.lock("x").acquire():  # pyright: ignore[reportGeneralTypeIssues]
        ...


def options(client: pawlock.Client, async_client: pawlock.AsyncClient) -> None:
    client.lock("x", on_exit="ignore")  # type: ignore[arg-type]
    client.lock("x", on_unavailable="opne")  # type: ignore[arg-type]
    client.lock("x", 30)  # type: ignore[call-arg]
    client.lock("x", timout=3)  # type: ignore[call-arg]
    pawlock.connect("redis://h", 6379)  # type: ignore[call-arg, arg-type]
    pawlock.Lock("x")  # type: ignore[call-arg]
    with async_client.lock("x"):  # type: ignore[attr-defined]
        pass
