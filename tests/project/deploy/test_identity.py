"""Where every process is number 1 of its container and all have one host name, owners are still told apart."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import pawlock
from tests.support.servers import Server

WHO = "import os, socket\nos.getpid = lambda: 1\nsocket.gethostname = lambda: 'pawlock-0'\n"
"""Said before pawlock is imported, so that it works where no namespaces may be made."""


class Twin:
    """A process that looks like all the others."""

    def __init__(self, url: str, program: str) -> None:
        text = WHO + "import asyncio, sys, time, pawlock\nurl = sys.argv[1]\n" + textwrap.dedent(program)
        command = [sys.executable, "-c", text, url]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> list[str]:
        said, _ = self.process.communicate(timeout=40)
        assert self.process.returncode == 0
        return said.split()


COUNTING = """
    with pawlock.connect(url) as client:
        for _ in range(8):
            with client.lock("counter", handover=0) as lease, client.rlock("again") as one, client.rlock("again"):
                with client.semaphore("two", permits=2):
                    with open({path!r}) as file:
                        number = int(file.read())
                    time.sleep(0.001)
                    with open({path!r}, "w") as file:
                        file.write(str(number + 1))
                print(lease.token, one.token)
"""


def test_twins_count_exactly_and_have_no_token_in_common(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    path = tmp_path / "number"
    path.write_text("0")
    twins = [Twin(valkey.url, COUNTING.format(path=str(path))) for _ in range(2)]
    tokens = [token for twin in twins for token in twin.end()]
    assert len(set(tokens)) == len(tokens) == 2 * 8 * 2
    assert {token.partition("@")[2].partition("/")[0] for token in tokens} == {"pawlock-0:1"}
    assert path.read_text() == "16"


HOLDING = """
    with pawlock.connect(url) as client, client.lock({held!r}) as lease:
        print(lease.fence, flush=True)
        if {wanted!r}:
            with client.lock({wanted!r}).acquire(timeout=20):
                pass
        else:
            sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_chain_of_twins_is_no_deadlock(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        last = Twin(valkey.url, HOLDING.format(held="c", wanted=""))
        assert last.says()
        middle = Twin(valkey.url, HOLDING.format(held="b", wanted="c"))
        assert middle.says()
        first = Twin(valkey.url, HOLDING.format(held="a", wanted="b"))
        assert first.says()
        while not (client.inspect("b").queue_length and client.inspect("c").queue_length):
            time.sleep(0.01)
        # Longer than the detection takes: it must not take three processes for one.
        time.sleep(2.5)
        assert client.inspect("a").held
        assert client.inspect("b").queue_length == client.inspect("c").queue_length == 1
        assert last.process.stdin is not None
        last.process.stdin.write("\n")
        for twin in (last, middle, first):
            twin.end()


@pytest.mark.slow
def test_a_twin_can_release_only_its_own(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    twin = Twin(valkey.url, HOLDING.format(held="mine", wanted=""))
    fence = int(twin.says())
    other = Twin(
        valkey.url,
        """
        with pawlock.connect(url) as client:
            print(client.lock("mine").try_acquire(), client.rlock("mine").try_acquire())
        """,
    )
    assert other.end() == ["None", "None"]
    with pawlock.connect(valkey.url) as client:
        assert client.inspect("mine").fence == fence
        assert client.inspect("mine").holder.startswith("pawlock-0:1/")
    twin.end()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="namespaces are Linux's")
def test_in_real_namespaces(valkey: Server) -> None:
    """The same with the kernel's own word for it, where this user may have it; else what was said before stands."""
    text = "import pawlock, sys\nwith pawlock.connect(sys.argv[1]).lock('x') as lease: print(lease.token)"
    around = ["unshare", "-p", "-u", "-f", "--mount-proc", "bash", "-ec", 'hostname web; exec "$@"', "x"]
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    found: list[str] = []
    for _ in range(2):
        command = [sys.executable, "-c", text, valkey.url]
        done = subprocess.run([*around, *command], capture_output=True, text=True, check=False, env=environ)
        if "unshare" in done.stderr:
            pytest.skip("no namespaces for this user")
        found.append(done.stdout.strip())
    assert [one.partition("@")[2].partition("/")[0] for one in found] == ["web:1", "web:1"]
    assert found[0] != found[1]
