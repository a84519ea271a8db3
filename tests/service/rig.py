"""Instances of the service, in this process or as processes of their own, and what they answer."""

import asyncio
import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pawlock.service.access import Access, entry_for, new_secret

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Tokens:
    """A file of tokens, and the tokens themselves."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens.json"
        self.secrets: dict[str, str] = {}
        self._entries: list[dict[str, Any]] = []
        self.add("admin", roles=["admin"], namespaces=["*"], keys=["*"])

    def add(
        self,
        name: str,
        *,
        roles: Sequence[str],
        namespaces: Sequence[str] = ("pawlock",),
        keys: Sequence[str] = (),
        expires: float | None = None,
        rate: float | None = None,
    ) -> str:
        self.secrets[name] = new_secret()
        entry = entry_for(name, self.secrets[name], namespaces, roles, expires, keys)
        if rate is not None:
            entry["rate"] = rate
        self._entries.append(entry)
        self.path.write_text(json.dumps({"tokens": self._entries}))
        return self.secrets[name]


class Service:
    """One instance, and how it is asked.

    Attributes:
        tokens: The tokens that it knows.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def send(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of an answer."""
        raise NotImplementedError

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "admin",
        headers: Mapping[str, str] | None = None,
        timeout: float = 30,
    ) -> Answer:
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {self.tokens.secrets.get(token, token)}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        status, text, told = self.send(method, path, data, sent, timeout)
        is_json = "json" in told.get("content-type", "") and method != "HEAD"
        return Answer(status, json.loads(text) if is_json else text, told)

    def acquire(
        self, name: str, kind: str = "lock", *, token: str = "admin", session: str = "", **body: object
    ) -> Answer:
        headers = {"Pawlock-Session": session} if session else {}
        return self.ask("POST", f"/v1/ns/pawlock/{kind}/{name}/acquire", body, token=token, headers=headers)


class Loop:
    """An event loop in a thread of its own, for the applications of this process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="service")
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 30) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class App(Service):
    """The application of an instance in this process: all but its connections. It reads its tokens when first asked."""

    def __init__(self, loop: Loop, url: str, tokens: Tokens) -> None:
        # Half a second, which a run that has no such test need not spend.
        import httpx

        from pawlock.service.app import create_app
        from pawlock.service.requests import State
        from pawlock.service.spaces import Spaces

        super().__init__(tokens)
        self.loop = loop
        self.state = State(Spaces(url), Access(tokens.path))
        self.app = create_app(self.state)
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 50_000))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://service")

    def send(
        self,
        method: str,
        path: str,
        data: bytes | Iterable[bytes] | None,
        headers: dict[str, str],
        timeout: float,
    ) -> tuple[int, bytes, dict[str, str]]:
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        parts = data if isinstance(data, bytes) or data is None else _one_by_one(data)

        async def ask() -> Any:
            return await self.client.request(method, path, content=parts, headers=encoded)

        found = self.loop.run(ask(), timeout)
        return found.status_code, found.content, dict(found.headers)

    def end(self) -> None:
        async def close() -> None:
            self.state.spaces.interrupt()
            await self.client.aclose()
            await self.state.spaces.close()

        self.loop.run(close())


async def _one_by_one(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


class Instance(Service):
    """One `pawlock serve`."""

    def __init__(
        self, url: str, tokens: Tokens, *options: str, port: int = 0, before: Sequence[str] = ()
    ) -> None:
        super().__init__(tokens)
        command = [*before, sys.executable, "-m", "pawlock", "serve", "--url", url, "--port", str(port)]
        command += ["--tokens", str(tokens.path), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, env=dict(os.environ))
        self.said = b""
        self.address = self._await_address()

    def _await_address(self) -> str:
        assert self.process.stderr is not None
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if select.select([self.process.stderr], [], [], 0.1)[0]:
                line = os.read(self.process.stderr.fileno(), 4096)
                self.said += line
                if not line:
                    break
            if found := re.search(rb"listening on (https?://\S+)\n", self.said):
                return found[1].decode()
        raise AssertionError(f"it did not begin: {self.said!r}")

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    def send(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read(), {k.lower(): v for k, v in response.headers.items()}
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM, timeout: float = 20) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        assert self.process.stderr is not None
        if not self.process.stderr.closed:
            self.said += self.process.stderr.read()
            self.process.stderr.close()
        return code


def resident(service: Instance) -> int:
    """How many bytes of memory an instance has."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024
