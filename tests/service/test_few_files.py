"""A service that may open few files: who is connected goes on, whatever others open."""

import contextlib
import http.client
import json
import os
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.rig import Instance, Tokens
from tests.support.servers import Server

pytestmark = pytest.mark.slow
_, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


@contextlib.contextmanager
def _limited(server: Server, tokens: Tokens, soft: int, hard: int) -> Iterator[Instance]:
    """An instance with such a limit of files."""
    service = Instance(server.url, tokens, before=("prlimit", f"--nofile={soft}:{hard}"))
    try:
        yield service
    finally:
        service.end(9)


@pytest.mark.skipif(not Path("/usr/bin/prlimit").exists(), reason="no prlimit on this machine")
def test_connections_without_end_leave_those_before_them_alone(
    server: Server, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # asyncio's own loop accepts many connections before it looks at the first of them.
    (tmp_path / "uvloop.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with _limited(server, tokens, 100, 120) as service, contextlib.ExitStack() as stack:
        client = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
        stack.callback(client.close)
        headers = {"Authorization": f"Bearer {tokens.secrets['admin']}"}

        def acquire(name: str, namespace: str = "pawlock") -> int:
            client.request("POST", f"/v1/ns/{namespace}/lock/{name}/acquire", b"{}", headers)
            response = client.getresponse()
            json.loads(response.read())
            return response.status

        assert acquire("before") == 200
        for _ in range(150):
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 10))
        assert acquire("a") == 200
        # A namespace needs a connection of its own to the server.
        assert acquire("b", "another") == 200
        service.end(9)
        assert service.said.count(b"\n") == 2, service.said[-2000:]


@pytest.mark.skipif(
    not Path("/usr/bin/prlimit").exists() or (HARD != resource.RLIM_INFINITY and HARD < 2000),
    reason="no prlimit on this machine, or too low a limit of files",
)
def test_it_opens_as_many_files_as_it_is_allowed_to(server: Server, tokens: Tokens) -> None:
    with _limited(server, tokens, 100, 2000) as service:
        limits = Path(f"/proc/{service.process.pid}/limits").read_text()
        found = re.search(r"Max open files +(\d+)", limits)
        assert found is not None
        assert int(found[1]) == 2000
