"""Libraries of other languages: a small program drives each, in the same lines of JSON as `benchmarks.worker`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.peers import installs
from benchmarks.peers.base import Peer

_HERE = Path(__file__).resolve().parent
_SCRIPTS = frozenset({"evalsha", "eval"})
_LISTENS = frozenset({"subscribe", "unsubscribe", "ssubscribe", "sunsubscribe"})


def _version(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text())
    return found[1] if found else "?"


def _node_command(job: str) -> list[str]:
    return ["node", str(installs.CACHE / "node" / "driver.js"), job]


def _go_command(name: str, job: str) -> list[str]:
    return [str(installs.CACHE / f"go-{name}" / "driver"), job]


def _java_command(job: str) -> list[str]:
    target = installs.CACHE / "java" / "target"
    return ["java", "-cp", f"{target / 'classes'}:{target / 'lib'}/*", "Driver", job]


def _peer(
    key: str,
    label: str,
    program: Callable[[str], list[str]],
    lacks: Callable[[], str | None],
    versions: dict[str, str],
    commands: frozenset[str] = _SCRIPTS,
    warm_up: float = 0.2,
) -> Peer:
    def why() -> str | None:
        reason = lacks()
        return None if reason is None else f"{label}: {reason}"

    return Peer(
        key=key,
        label=label,
        modules=(),
        distributions=(),
        commands=commands,
        warm_up=warm_up,
        program=program,
        lacks=why,
        stated=versions,
    )


def _go(key: str, label: str, module: str, name: str, commands: frozenset[str] = _SCRIPTS) -> Peer:
    version = _version(_HERE / "go" / name / "go.mod", re.escape(module) + r" v(\S+)")
    return _peer(
        key, label, partial(_go_command, name), partial(installs.go, name), {label: version}, commands
    )


_PACKAGE = _HERE / "node" / "package.json"

NODE = _peer(
    "node-redlock",
    "node-redlock 5",
    _node_command,
    installs.node,
    {
        "node-redlock": _version(_PACKAGE, r'"redlock": "(.*?)"'),
        "ioredis": _version(_PACKAGE, r'"ioredis": "(.*?)"'),
    },
)
REDSYNC = _go("redsync", "redsync", "github.com/go-redsync/redsync/v4", "redsync", _SCRIPTS | {"set"})
BSM = _go("bsm-redislock", "bsm/redislock", "github.com/bsm/redislock", "redsync")
RUEIDIS = _go("rueidislock", "rueidislock", "github.com/redis/rueidis", "rueidislock")
REDISSON = _peer(
    "redisson",
    "Redisson",
    _java_command,
    installs.java,
    {
        "redisson": _version(
            _HERE / "java" / "pom.xml", r"<artifactId>redisson</artifactId>\s*<version>(.*?)<"
        )
    },
)
