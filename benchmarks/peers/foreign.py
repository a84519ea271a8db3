"""Libraries of other languages: a small program drives each, in the same lines of JSON as `benchmarks.worker`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from benchmarks.peers.base import Peer
from benchmarks.peers.installed import CACHE, HERE, ready

_SCRIPTS = frozenset({"evalsha", "eval"})


def _version(file: str, pattern: str) -> str:
    found = re.search(pattern, (HERE / file).read_text())
    return found[1] if found else "?"


def _run(command: list[str], job: str) -> list[str]:
    return [*command, job]


def _peer(
    key: str,
    label: str,
    command: list[str],
    lacks: Callable[[], str | None],
    versions: dict[str, str],
    commands: frozenset[str] = _SCRIPTS,
) -> Peer:
    program = partial(_run, command)
    return Peer(key, label, commands=commands, program=program, stated=versions, lacks=lacks)


def _go(key: str, label: str, module: str, name: str, commands: frozenset[str] = _SCRIPTS) -> Peer:
    lacks = partial(ready, f"go-{name}", ("go/main.go", f"go/{name}"), ("go", "build", "-o", "driver", "."))
    version = _version(f"go/{name}/go.mod", re.escape(module) + r" v(\S+)")
    return _peer(key, label, [str(CACHE / f"go-{name}" / "driver")], lacks, {label: version}, commands)


_NPM = ("npm", "ci", "--silent", "--no-audit", "--no-fund")
_JAVA = CACHE / "java" / "target"

PEERS = (
    _peer(
        "node-redlock",
        "node-redlock 5",
        ["node", str(CACHE / "node" / "driver.js")],
        partial(ready, "node", ("node",), _NPM),
        {
            "node-redlock": _version("node/package.json", r'"redlock": "(.*?)"'),
            "ioredis": _version("node/package.json", r'"ioredis": "(.*?)"'),
        },
    ),
    _go("redsync", "redsync", "github.com/go-redsync/redsync/v4", "redsync", _SCRIPTS | {"set"}),
    _go("bsm-redislock", "bsm/redislock", "github.com/bsm/redislock", "redsync"),
    _go("rueidislock", "rueidislock", "github.com/redis/rueidis", "rueidislock"),
    _peer(
        "redisson",
        "Redisson",
        ["java", "-cp", f"{_JAVA / 'classes'}:{_JAVA / 'lib'}/*", "Driver"],
        partial(ready, "java", ("java",), ("java", "-version"), ("mvn", "-q", "-B", "package")),
        {"redisson": _version("java/pom.xml", r"<artifactId>redisson</artifactId>\s*<version>(.*?)<")},
    ),
)
