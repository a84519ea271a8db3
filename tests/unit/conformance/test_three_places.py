"""A primitive is three places: what reads the registry knows one that no file of pawlock names (`turnstile.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pawlock
from pawlock.metrics._shared import kinds
from pawlock.primitives.registry import REGISTRY
from tests.conformance.suite import APIS, Api, broken, checks_of, run
from tests.faults.rig import until
from tests.service.rig import Instance, Tokens
from tests.simulator.command import main as simulate
from tests.simulator.drawing import draw
from tests.support.servers import Server
from tests.unit.conformance import turnstile

ROOT = Path(__file__).resolve().parents[3]
BOOT = """
import runpy, sys
from tests.unit.conformance.turnstile import know
know()
sys.argv = ["pawlock", *sys.argv[4:]]
runpy.run_module("pawlock", run_name="__main__")
"""
"""What runs the command in a process that knows of it; called as ``python -c BOOT python -m pawlock …``."""


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    turnstile.know()
    yield
    turnstile.forget()


def test_no_file_of_pawlock_knows_of_it() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.lua"), *(ROOT / "docs").rglob("*.md")]
    assert [str(path) for path in sources if "turnstile" in path.read_text(encoding="utf-8").lower()] == []
    assert len(sources) > 300


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
def test_it_keeps_its_promises(valkey: Server, api: Api) -> None:
    results = run(valkey.url, ["turnstile"], [api])
    assert {one.check for one in results} == {one.name for one in checks_of(REGISTRY["turnstile"])}
    assert not broken(results), broken(results)


def test_the_simulator_draws_it(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = [seed for seed in range(100) if draw(seed).primitive == "turnstile"]
    assert len(drawn) > 3
    assert simulate(["--seeds", "1", "--start", str(drawn[0])]) == 0
    assert "turnstile" in capsys.readouterr().out
    turnstile.forget()
    # What the other seeds are is not for it to say.
    assert not [seed for seed in range(100) if draw(seed).primitive == "turnstile"]


def test_the_service_holds_it(valkey: Server, tmp_path: Path) -> None:
    service = Instance(valkey.url, Tokens(tmp_path), before=(sys.executable, "-c", BOOT))
    try:
        at = "/v1/ns/pawlock/turnstile/t"
        held = service.ask("POST", f"{at}/acquire", {"ttl": 20})
        assert (held.status, held.body["kind"]) == (200, "turnstile")
        with pawlock.connect(valkey.url) as client:
            assert turnstile.turnstile(client, "t").try_acquire() is None
            with client.lock("t", timeout=0):
                pass  # another name
        assert service.ask("GET", at).body["fence"] == held.body["fence"]
        path = service.ask("GET", "/openapi.json").body["paths"]["/v1/ns/{namespace}/{kind}/{name}/acquire"]
        assert "turnstile" in str(path["post"]["parameters"])
        assert service.ask("POST", f"{at}/release", {"token": held.body["token"]}).status == 200
    finally:
        service.end(9)


def test_an_operator_takes_it(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        lease = turnstile.turnstile(client, "t", renew=False).acquire()
        assert client.inspect("t").held_as == "turnstile"
        operator: Any = client
        assert operator.force_release("t", "turnstile", reason="a test").count == 1
        with pytest.raises(pawlock.NotHeld):
            lease.release()
    assert "turnstile" in kinds()


def test_the_command_lists_it(valkey: Server) -> None:
    command = [
        sys.executable,
        "-c",
        BOOT,
        sys.executable,
        "-m",
        "pawlock",
        "ls",
        "--url",
        valkey.url,
        "--json",
    ]

    def listed() -> list[str]:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT)
        found = json.loads(done.stdout or "[]")
        return [one["kind"] for one in (found["locks"] if isinstance(found, dict) else found)]

    with pawlock.connect(valkey.url) as client, turnstile.turnstile(client, "t", ttl=20):
        until(lambda: listed() == ["turnstile"], timeout=20, what="it is listed")
