"""Instances of the service as processes of their own, and a client of plain HTTP."""

import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pawlock.service.access import entry_for, new_secret


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
        limits: Mapping[str, float] | None = None,
    ) -> str:
        self.secrets[name] = new_secret()
        entry = entry_for(name, self.secrets[name], namespaces, roles, expires, keys)
        if limits:
            entry["limits"] = limits
        self._entries.append(entry)
        self.path.write_text(json.dumps({"tokens": self._entries}))
        return self.secrets[name]


class Instance:
    """One `pawlock serve`."""

    def __init__(
        self, url: str, tokens: Tokens, *options: str, port: int = 0, before: Sequence[str] = ()
    ) -> None:
        self.tokens = tokens
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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {self.tokens.secrets.get(token, token)}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            text = response.read()
            kind = response.headers.get("content-type", "")
            told = json.loads(text) if "json" in kind and method != "HEAD" else text
            return Answer(response.status, told, dict(response.headers))
        finally:
            connection.close()

    def acquire(
        self, name: str, kind: str = "lock", *, token: str = "admin", session: str = "", **body: object
    ) -> Answer:
        headers = {"Pawlock-Session": session} if session else {}
        return self.ask("POST", f"/v1/ns/pawlock/{kind}/{name}/acquire", body, token=token, headers=headers)

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
