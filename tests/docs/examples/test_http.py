"""The clients of examples/http in other languages: all at once on one counter, which must come out exact."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.rig import Instance, Tokens
from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[3]
HERE = ROOT / "examples" / "http"
CLIENTS: dict[str, tuple[list[str], str]] = {
    "curl": (["bash"], "counter.sh"),
    "node": (["node"], "counter.mjs"),
    "go": (["go"], "counter.go"),
    "java": (["java"], "Counter.java"),
}
NEEDS = {"java": "javac"}
"""Whose compiler is a program of its own: a Java that only runs cannot take a source file."""


@pytest.fixture
def instance(valkey: Server, tmp_path: Path) -> Iterator[Instance]:
    valkey.command("FLUSHALL")
    found = Instance(valkey.url, Tokens(tmp_path))
    yield found
    found.end()


@pytest.fixture
def started(instance: Instance, tmp_path: Path) -> Iterator[Callable[[str, str, int], subprocess.Popen[str]]]:
    """Starts a client: which one, the name of its lock, its rounds; all count in one file."""
    (tmp_path / "number").write_text("0\n")
    # Go keeps what it compiled below HOME.
    environ = {"HOME": str(tmp_path), **os.environ, "PAWLOCK_TOKEN": instance.tokens.secrets["admin"]}
    running: list[subprocess.Popen[str]] = []

    def start(client: str, name: str, rounds: int) -> subprocess.Popen[str]:
        program, source = CLIENTS[client]
        if shutil.which(NEEDS.get(client, program[0])) is None or (
            client == "curl" and not shutil.which("curl")
        ):
            pytest.skip(f"no {client} on PATH")
        command = [*program, str(HERE / source)]
        if client == "go":
            # Not `go run`, which leaves its child alone when it is killed.
            command = [str(tmp_path / "counter")]
            built = ["go", "build", "-o", *command, str(HERE / source)]
            subprocess.run(built, env=environ, cwd=tmp_path, check=True, timeout=100)
        command += [instance.address, name, str(tmp_path / "number"), str(rounds)]
        running.append(
            subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def fences(process: subprocess.Popen[str]) -> list[int]:
    said, complained = process.communicate(timeout=100)
    assert process.returncode == 0, complained
    found = [int(line) for line in said.split()]
    assert found == sorted(set(found))
    return found


@pytest.mark.parametrize(
    "clients",
    [("curl", "curl"), pytest.param(("curl", "node", "go", "java"), marks=pytest.mark.slow)],
    ids="-".join,
)
def test_clients_in_other_languages_count_exactly_together(
    clients: tuple[str, ...], started: Callable[[str, str, int], subprocess.Popen[str]], tmp_path: Path
) -> None:
    for client in set(clients) & {"go", "java"}:
        # Compiled once before, so that they really run at the same time.
        assert fences(started(client, "warm-up", 1))
    (tmp_path / "number").write_text("0\n")
    rounds = 8
    running = [started(client, "order:42", rounds) for client in clients]
    granted = [fence for process in running for fence in fences(process)]
    assert len(set(granted)) == len(clients) * rounds
    assert (tmp_path / "number").read_text() == f"{len(clients) * rounds}\n"


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_is_killed_frees_its_lock_and_one_whose_lease_is_taken_says_so(
    client: str,
    started: Callable[[str, str, int], subprocess.Popen[str]],
    instance: Instance,
    tmp_path: Path,
) -> None:
    assert fences(started(client, "warm-up", 1))
    # Reading from a pipe that nobody writes to: it stands still in the middle of its work.
    (tmp_path / "number").unlink()
    os.mkfifo(tmp_path / "number")
    process = started(client, "job", 1)
    look = "/v1/ns/pawlock/lock/job"
    while not instance.ask("GET", look).body["held"]:
        assert process.poll() is None
    first = instance.ask("GET", look).body["fence"]
    forced = instance.ask("POST", f"{look}/force-release", {"reason": "a test"})
    assert forced.status == 200
    # It is told at its next renewal, every 1.7 s. The script ends at once; the others see it when they go on.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2.5)
    pipe = os.open(tmp_path / "number", os.O_RDWR)
    os.write(pipe, b"1\n")
    os.close(pipe)
    _, complained = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "lost" in complained
    other = started(client, "job", 1)
    while not (told := instance.ask("GET", look).body)["held"]:
        assert other.poll() is None
    assert told["fence"] > first
    other.kill()
    assert instance.acquire("job", wait=8).status == 200


def test_every_client_is_tried_and_on_the_page() -> None:
    assert sorted(path.name for path in HERE.iterdir()) == sorted(source for _, source in CLIENTS.values())
    page = (ROOT / "docs" / "how-to" / "serve.md").read_text()
    assert all(f'--8<-- "examples/http/{source}"' in page for _, source in CLIENTS.values())
