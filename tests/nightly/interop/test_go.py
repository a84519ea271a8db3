"""The wire page lets a team write a client: `go/wire.go` was written from it alone, and shares names with pawlock."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import pytest

import pawlock
from tests.support.pace import pace
from tests.support.servers import Server

HERE = Path(__file__).resolve().parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("go") is None, reason="no go on PATH"),
]
NAMES = ("order:42", "a {b} 100%", "tab\tand\u2028line, ünï", "%7B")


class Elsewhere:
    """One run of the program."""

    def __init__(self, program: Path, server: Server, name: str, ttl_ms: int = 30_000) -> None:
        command = [
            str(program),
            str(server.socket_path),
            str(files("pawlock.primitives")),
            "hold",
            name,
            str(ttl_ms),
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def release(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("go")
    built = ["go", "build", "-o", str(folder / "wire"), str(HERE / "go" / "wire.go")]
    subprocess.run(built, check=True, cwd=folder, timeout=110)
    return folder / "wire"


@pytest.fixture
def elsewhere(program: Path, server: Server) -> Iterator[Callable[..., Elsewhere]]:
    running: list[Elsewhere] = []

    def start(name: str, ttl_ms: int = 30_000) -> Elsewhere:
        running.append(Elsewhere(program, server, name, ttl_ms))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.communicate()


def test_it_holds_a_name_and_hands_it_to_a_waiter_of_pawlock(
    elsewhere: Callable[..., Elsewhere], server: Server
) -> None:
    with pawlock.connect(server.url) as client, ThreadPoolExecutor(1) as pool:
        for name in NAMES:
            held = elsewhere(name)
            word, fence = held.says()
            assert word == "held"
            template = name.replace("{", "{{").replace("}", "}}")
            info = client.inspect(template)
            assert (info.holder, info.fence) == ("elsewhere:1/go", int(fence))
            assert client.lock(template).try_acquire() is None
            waiting = pool.submit(client.lock(template).acquire, timeout=20)
            while not client.inspect(template).queue_length:
                time.sleep(0.005)
            begin = time.monotonic()
            held.release()
            lease = waiting.result()
            assert time.monotonic() - begin < pace() * 0.5
            assert held.says() == ["released"]
            assert lease.fence > int(fence)
            lease.release()


def test_it_waits_behind_pawlock_and_is_handed_the_name(
    elsewhere: Callable[..., Elsewhere], server: Server
) -> None:
    with pawlock.connect(server.url) as client:
        lease = client.fair_lock("job").acquire()
        first, second = elsewhere("job"), None
        assert first.says() == ["waiting", "0"]
        second = elsewhere("job")
        assert second.says() == ["waiting", "1"]
        begin = time.monotonic()
        lease.release()
        assert first.says() == ["told"]
        assert time.monotonic() - begin < pace() * 0.5
        word, fence = first.says()
        assert (word, int(fence) > lease.fence) == ("held", True)
        first.process.kill()
        first.process.wait()
        # Nobody releases for it: the second finds out by its own questions, or by the hand-off of an expired name.
        client.force_release("job", reason="its holder was killed")
        assert second.says() == ["told"]
        assert int(second.says()[1]) > int(fence)
        second.release()
        assert second.says() == ["released"]


def test_it_keeps_a_short_lease_by_renewal_and_notices_when_it_is_taken(
    elsewhere: Callable[..., Elsewhere], server: Server
) -> None:
    with pawlock.connect(server.url) as client:
        held = elsewhere("short", 300)
        fence = int(held.says()[1])
        time.sleep(1)
        assert client.inspect("short").fence == fence
        client.force_release("short", reason="a test")
        assert held.process.wait(5) == 1
        assert held.says() == []
