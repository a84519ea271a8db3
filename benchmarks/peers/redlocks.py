"""Other libraries on several independent masters, each in its idiomatic way."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import redis

from benchmarks.peers.base import Handle, Options, Peer

TTL = 30.0
_FOLDER = Path(__file__).resolve().parents[2] / ".make" / "node"
_SCRIPT = Path(__file__).with_name("node_redlock.js")
_PACKAGES = ("redlock@5.0.0-beta.2", "ioredis@5")


def _ports(url: str) -> list[int]:
    return [int(host.rpartition(":")[2]) for host in url.removeprefix("redlock://").split(",")]


class _Pottery:
    def __init__(self, url: str) -> None:
        from pottery import Redlock  # type: ignore[import-untyped,import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports, reportMissingTypeStubs, reportUnknownVariableType]

        self._kind: Any = Redlock
        self._masters = {redis.Redis(port=port) for port in _ports(url)}

    def handle(self, name: str) -> Handle:
        lock = self._kind(key=name, masters=self._masters, auto_release_time=TTL)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())

    def close(self) -> None:
        for master in self._masters:
            master.close()


class _Aioredlock:
    def __init__(self, url: str) -> None:
        from aioredlock import Aioredlock  # type: ignore[import-untyped,import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports, reportMissingTypeStubs, reportUnknownVariableType]

        manager: Any = Aioredlock
        self._manager: Any = manager([("127.0.0.1", port) for port in _ports(url)])

    async def handle(self, name: str) -> Handle:
        return Handle(
            acquire=lambda: self._manager.lock(name, lock_timeout=TTL), release=self._manager.unlock
        )

    async def close(self) -> None:
        await self._manager.destroy()


def _open_pottery(url: str, options: Options) -> _Pottery:
    del options
    return _Pottery(url)


async def _open_aioredlock(url: str, options: Options) -> _Aioredlock:
    del options
    return _Aioredlock(url)


POTTERY = Peer(
    key="pottery",
    label="pottery Redlock",
    modules=("pottery",),
    distributions=("pottery",),
    commands=frozenset({"set", "evalsha", "eval"}),
    open=_open_pottery,
)

AIOREDLOCK = Peer(
    key="aioredlock",
    label="aioredlock",
    # Its last release needs a client that Python 3.12 cannot import any more.
    modules=("aioredlock", "distutils") if sys.version_info < (3, 12) else ("aioredlock_on_python_3_11",),
    distributions=("aioredlock", "aioredis"),
    commands=frozenset({"evalsha", "eval"}),
    open_async=_open_aioredlock,
)


@cache
def _node() -> str | None:
    """Why the node library cannot take part; None when its packages are there."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        return "node-redlock: no node and npm on PATH"
    if (_FOLDER / "node_modules" / "redlock").is_dir() and (_FOLDER / "node_modules" / "ioredis").is_dir():
        return None
    _FOLDER.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(_FOLDER), *_PACKAGES],
        capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    return None if done.returncode == 0 else f"node-redlock: npm install failed: {done.stderr.strip()[-200:]}"


def _node_command(job: str) -> list[str]:
    return ["node", str(_SCRIPT), str(_FOLDER / "node_modules"), job]


NODE = Peer(
    key="node-redlock",
    label="node-redlock 5",
    modules=(),
    distributions=(),
    commands=frozenset({"evalsha", "eval"}),
    program=_node_command,
    lacks=_node,
)
