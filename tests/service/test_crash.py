"""Two instances, one of them killed under load: no lock is lost, none is granted twice."""

import http.client
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from tests.service.rig import Instance

pytestmark = pytest.mark.slow
CLIENTS, NAMES, SECONDS = 50, 5, 8.0


@dataclass
class Hold:
    name: str
    fence: int
    begin: float
    end: float


class Client:
    """Works with retries at whichever instance answers; its session keeps what it holds."""

    def __init__(self, number: int, instances: list[Instance], end: float) -> None:
        self.number = number
        self.instances = instances
        self.end = end
        self.holds: list[Hold] = []
        self.trouble: list[str] = []
        self.retried = 0

    def ask(
        self, method: str, path: str, body: object, headers: dict[str, str], patience: float = 20
    ) -> tuple[int, Any]:
        key = {"Idempotency-Key": uuid.uuid4().hex, **headers}
        give_up = time.monotonic() + patience
        at = self.number
        while True:
            try:
                answer = self.instances[at % 2].ask(method, path, body, headers=key, timeout=10)
                if answer.status not in (503, 409) or answer.body["code"] in (
                    "UNLOCK_FAILED",
                    "EXTEND_FAILED",
                ):
                    return answer.status, answer.body
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                self.retried += 1
            at += 1
            assert time.monotonic() < give_up, f"{method} {path}: no answer for {patience} s"
            time.sleep(0.02)

    def work(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - told by the test
            self.trouble.append(repr(error))

    def _work(self) -> None:
        _, opened = self.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 6}, {})
        session = {"Pawlock-Session": opened["session"]}
        while time.monotonic() < self.end:
            name = f"n{self.number % NAMES}"
            status, grant = self.ask("POST", f"/v1/ns/pawlock/lock/{name}/acquire", {"wait": 5}, session)
            if status == 423:
                continue
            if status != 200:
                self.trouble.append(f"acquire {status} {grant}")
                return
            begin = time.monotonic()
            time.sleep(0.005)
            status, kept = self.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", {}, session)
            if status != 200 or grant["token"] not in [one["token"] for one in kept["held"]]:
                self.trouble.append(f"lost: keep-alive {status} {kept} without {grant['token']}")
            self.holds.append(Hold(name, grant["fence"], begin, time.monotonic()))
            status, told = self.ask(
                "POST", f"/v1/ns/pawlock/lock/{name}/release", {"token": grant["token"]}, session
            )
            if status != 200:
                self.trouble.append(f"release {status} {told}")


@pytest.mark.fault
def test_one_of_two_instances_is_killed_under_load(serve: Callable[..., Instance]) -> None:
    instances = [serve(), serve()]
    clients = [Client(number, instances, time.monotonic() + SECONDS) for number in range(CLIENTS)]
    threads = [threading.Thread(target=client.work) for client in clients]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS / 2)
    before = sum(len(client.holds) for client in clients)
    instances[0].end(9)
    for thread in threads:
        thread.join(60)
    assert [trouble for client in clients for trouble in client.trouble] == []
    assert sum(client.retried for client in clients) > 5
    holds = sorted(
        (hold for client in clients for hold in client.holds), key=lambda hold: (hold.name, hold.fence)
    )
    assert len(holds) > before + 20
    for one, other in pairwise(holds):
        if one.name == other.name:
            assert one.fence < other.fence
            assert one.end <= other.begin, (one, other)
