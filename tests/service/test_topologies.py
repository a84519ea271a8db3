"""The service before every topology: what it can keep it serves, what it cannot keep it refuses."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pawlock import embedded
from tests.service.rig import Instance, Tokens
from tests.support.command import call
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.servers import Server

NS = "/v1/ns/pawlock"


@contextmanager
def before(url: str, tokens: Tokens) -> Iterator[Instance]:
    service = Instance(url, tokens)
    try:
        yield service
    finally:
        service.end(9)


def works(service: Instance) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "lock": {}, "semaphore": {"permits": 2}, "rwlock_write": {}, "election": {},
    }  # fmt: skip
    for kind, body in bodies.items():
        first = service.acquire("n", kind, **body)
        assert first.status == 200, first.body
        told = {**body, "token": first.body["token"]}
        assert service.ask("POST", f"{NS}/{kind}/n/release", told).status == 200
    for spelled in ("plain:k1", "redisson-fenced:k2", "spring:locks:k3", "python-redis-lock:{k4}"):
        first = service.acquire(spelled, "key")
        assert first.status == 200, first.body
        left = service.ask("POST", f"{NS}/key/{spelled}/release", {"token": first.body["token"]})
        assert left.status == 200, left.body
    session = service.ask("POST", f"{NS}/sessions", {"ttl": 10}).body["session"]
    assert service.acquire("s", session=session).status == 200
    kept = service.ask("POST", f"{NS}/sessions/keep-alive", headers={"Pawlock-Session": session})
    assert [one["name"] for one in kept.body["held"]] == ["s"]
    many = service.ask("POST", f"{NS}/multi_lock/acquire", {"names": ["m1", "m2", "m3"], "wait": 5})
    assert many.status == 200, many.body
    assert {one["name"] for one in service.ask("GET", f"{NS}/locks").body["locks"]} == {"s", "m1", "m2", "m3"}
    assert service.ask("POST", f"{NS}/latch/l/count-down", {"count": 1}).status == 200
    assert service.ask("POST", f"{NS}/latch/l/wait", {"count": 1, "wait": 5}).status == 200
    assert service.ask("POST", f"{NS}/barrier/b/wait", {"parties": 1}).body["missing"] == 0


@pytest.mark.slow
def test_a_cluster(tokens: Tokens) -> None:
    with ClusterGroup() as group, before(group.url, tokens) as service:
        works(service)
        # Its list may lie on another node, which the script of a release does not reach.
        refused = service.acquire("python-redis-lock:k", "key")
        assert (refused.status, refused.body["code"]) == (501, "NOT_SUPPORTED"), refused.body


@pytest.mark.slow
@pytest.mark.fault
def test_sentinels(tokens: Tokens) -> None:
    with SentinelGroup() as group, before(group.url, tokens) as service:
        works(service)
        old = group.master
        old.kill()
        group.wait_for_failover(old)
        end = time.monotonic() + 20
        key = {"Idempotency-Key": "k"}
        while (
            answer := service.ask("POST", f"{NS}/lock/after/acquire", {"wait": 1}, headers=key)
        ).status != 200:
            assert answer.status in (423, 503), answer.body
            assert time.monotonic() < end
            time.sleep(0.1)


def test_independent_masters_are_refused_clearly(server: Server, tokens: Tokens) -> None:
    url = f"redlock://127.0.0.1:{server.port},127.0.0.1:{server.port + 1},127.0.0.1:{server.port + 2}"
    code, _, said = call("serve", "--url", url, "--port", "0", "--tokens", str(tokens.path))
    assert code in (64, 69)
    assert "independent masters" in said


def test_one_command_serves_the_embedded_server(tmp_path: Path) -> None:
    state = tmp_path / "state"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PAWLOCK_")}
    env["PAWLOCK_STATE_DIR"] = str(state)
    process = subprocess.Popen(
        [sys.executable, "-m", "pawlock", "serve", "--url", "embedded://", "--port", "0"],
        stderr=subprocess.PIPE,
        env=env,
    )
    said = b""
    try:
        assert process.stderr is not None
        while (found := re.search(rb"listening on (http://\S+)\n", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        secret = re.search(rb"^pawlock_\S+$", said, re.MULTILINE)
        assert secret is not None
        for status in (200, 423):
            words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", "{}", "-H"]
            done = subprocess.run(
                [*words, f"Authorization: Bearer {secret[0].decode()}", f"{found[1].decode()}{NS}/lock/a/acquire"],
                capture_output=True, text=True, timeout=20, check=False,
            )  # fmt: skip
            assert done.stdout == str(status), (done, said)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
        if state.exists():
            embedded.stop(state, force=True)
