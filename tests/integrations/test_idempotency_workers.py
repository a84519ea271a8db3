"""``pawlock.integrations.asgi.Idempotency`` in worker processes of uvicorn that are killed."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nightly.apps.rig import PATIENCE, Rig, ask, listening, rig, until
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.slow
TTL = 2.0
APP = "tests.integrations.idempotency_app:app"


@dataclass
class Shop:
    port: int
    rig: Rig
    notes: Path

    def pay(self, number: int, seconds: float = 0.2) -> tuple[int, bytes, bool]:
        """Status, body, and whether it was a replay; status 0 if the worker died."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            headers = {"Idempotency-Key": f"key-{number}", "Authorization": "ann"}
            connection.request("POST", f"/payments/{number}?seconds={seconds}", headers=headers)
            found = connection.getresponse()
            return found.status, found.read(), found.headers["Idempotent-Replayed"] == "true"
        except (OSError, http.client.HTTPException):
            return 0, b"", False
        finally:
            connection.close()

    def pay_until_paid(self, number: int, seconds: float = 0.2) -> tuple[bytes, bool]:
        """Repeat the request as clients do: after a lost connection, and after 409."""

        def paid() -> tuple[bytes, bool] | None:
            status, body, replayed = self.pay(number, seconds)
            assert status in (0, 200, 409), (status, body, self.rig.log())
            return (body, replayed) if status == 200 else None

        found = until(f"{number} is paid", paid)
        assert found is not None
        return found

    def noted(self, what: str, number: int) -> list[int]:
        """The processes that began or ended a payment."""
        lines = [line.split() for line in self.notes.read_text().splitlines()]
        return [int(pid) for word, one, pid in lines if (word, one) == (what, str(number))]


@pytest.fixture
def shop(valkey: Server, tmp_path: Path) -> Iterator[Shop]:
    valkey.command("FLUSHALL")
    notes = tmp_path / "notes"
    notes.touch()
    environ = {
        "PAWLOCK_URL": valkey.url, "NOTES": str(notes), "PYTHONWARNINGS": "ignore", "HOME": str(tmp_path),
    }  # fmt: skip
    with rig(tmp_path, environ) as found, listening() as gate:
        port = gate.getsockname()[1]
        fd = str(gate.fileno())
        found.start(
            "uvicorn", APP, "--fd", fd, "--workers", "2", "--log-level", "warning", fds=[gate.fileno()]
        )
        until("it serves", lambda: serves(port))
        yield Shop(port, found, notes)


def serves(port: int) -> bool:
    try:
        return ask(port, "GET", "/", timeout=5).status == 200
    except OSError:
        return False


def at_once(*jobs: Callable[[], object]) -> None:
    failed: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_of_requests_at_once_one_worker_handles_one(shop: Shop) -> None:
    answers: list[tuple[bytes, bool]] = []
    at_once(*[lambda: answers.append(shop.pay_until_paid(1)) for _ in range(8)])
    assert len({body for body, _ in answers}) == 1
    assert [replayed for _, replayed in answers].count(False) == 1
    assert len(shop.noted("begin", 1)) == len(shop.noted("end", 1)) == 1


def test_after_a_kill_in_the_middle_it_is_handled_again_within_the_ttl(shop: Shop) -> None:
    first = threading.Thread(target=shop.pay, args=(1, 600))
    first.start()
    (pid,) = until("it is being handled", lambda: shop.noted("begin", 1))
    assert shop.pay(1, 600)[0] == 409
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    first.join()
    # The same request, as far as the middleware can tell, but for the time that it takes.
    until("its key is free", lambda: shop.pay(1, 0)[0] == 200)
    assert time.monotonic() - killed < TTL + 2 * pace()
    assert shop.pay(1, 600)[0] == 422
    body, replayed = shop.pay_until_paid(1, 0)
    assert replayed
    (other,) = shop.noted("end", 1)
    assert other != pid
    assert str(other).encode() in body


@pytest.mark.timeout(240)
def test_killed_at_random_each_payment_ends_once(shop: Shop) -> None:
    """A payment may begin twice, where its first worker died; it ends once, and everybody gets that response."""
    ended = threading.Event()
    rng = random.Random(20)
    answers: dict[int, set[bytes]] = {number: set() for number in range(24)}

    def kill() -> None:
        while not ended.wait(rng.uniform(0.5, 1.5)):
            pids = {pid for number in answers for pid in shop.noted("begin", number)}
            ends = {pid for number in answers for pid in shop.noted("end", number)}
            for pid in sorted(pids - ends)[:1] or sorted(pids)[-1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def buy(mine: list[int]) -> None:
        for number in mine:
            answers[number].add(shop.pay_until_paid(number, 0.3)[0])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        at_once(*[lambda one=one: buy(list(range(one % 4, 24, 4))) for one in range(8)])
    finally:
        ended.set()
        killer.join()
    assert all(len(bodies) == 1 for bodies in answers.values()), answers
    begun = [len(shop.noted("begin", number)) for number in answers]
    done = [len(shop.noted("end", number)) for number in answers]
    assert max(begun) > 1, "no worker was killed in the middle"
    # Between the end of the work and its record a kill lets it be done once more: nothing can prevent that.
    assert done.count(1) >= len(done) - 1, done
