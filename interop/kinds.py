"""The clients that share a key with pawlock in these tests: how each is started, and what it does to a key."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from pathlib import Path

__all__ = [
    "HOME",
    "KINDS",
    "NEEDS",
    "REQUIRED",
    "ROOT",
    "Kind",
    "common_key",
    "missing",
    "register",
    "wire_of",
]

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".interop"
"""Where the libraries are installed; `make interop` fills it."""

DRIVERS = Path(__file__).resolve().parent / "drivers"
REQUIRED = os.environ.get("PAWLOCK_INTEROP") == "require"
"""Whether what cannot run is a failure."""

OWN = "pawlock:"
"""What the keys of pawlock's own protocol begin with in these tests."""

NEEDS: Mapping[str, Sequence[str]] = {
    "python": (),
    "node": ("node", "npm"),
    "go": ("go",),
    "java": ("java", "javac", "mvn"),
}
"""The programs that each part of the drivers needs on PATH."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One client behind the line protocol.

    Attributes:
        name: What it is called in ``--mix``.
        part: What has to be installed for it, ``""`` for nothing.
        command: How its driver is started; the URL of the server is appended.
        prefix: What the keys of its library begin with.
        hashed: Whether it stores a hash, which no client of strings can share.
        period: Seconds between two tries of a waiter at most; ``inf`` for one that only a message of its own library
            wakes.
        subscribes: Whether a message wakes its waiters, so that they need not poll.
        asks: Whether the library compares before it deletes; False: it may end somebody else's lock.
        settable: Whether a TTL can be given for each lock.
        ttl: Seconds of the TTL of a library that takes none, as it is by default; 0: it takes one.
        extends: Whether it has a call that extends.
        queues: Whether it speaks pawlock's own protocol, so that it queues with pawlock and its fences are pawlock's.
        environ: More environment variables.
    """

    name: str
    part: str
    command: tuple[str, ...]
    prefix: str = ""
    hashed: bool = False
    period: float = 0.3
    subscribes: bool = False
    asks: bool = True
    settable: bool = True
    ttl: float = 0.0
    extends: bool = True
    queues: bool = False
    environ: tuple[tuple[str, str], ...] = ()

    @property
    def least(self) -> float:
        """The share of all grants below which it counts as starved: pollers that sleep long have less luck."""
        return 0.03 if self.subscribes or self.period <= 0.1 or isinf(self.period) else 0.01


def _pawlock(name: str) -> Kind:
    command = (sys.executable, str(DRIVERS / "python" / "driver.py"), name)
    return Kind(name, "", command, period=0.1, queues=True)


def _python(name: str, prefix: str = "", *, period: float = 0.3, extends: bool = True) -> Kind:
    command = (str(HOME / "python" / "bin" / "python"), str(DRIVERS / "python" / "driver.py"), name)
    return Kind(name, "python", command, prefix, period=period, extends=extends)


_NODE = ("node", str(DRIVERS / "node" / "driver.js"))
_MODULES = (("MODULES", str(HOME / "node" / "modules")),)


def _node(name: str, prefix: str = "", *, period: float = 0.3, extends: bool = True) -> Kind:
    return Kind(name, "node", (*_NODE, name), prefix, period=period, extends=extends, environ=_MODULES)


def _go(name: str, *, period: float = 0.3) -> Kind:
    return Kind(name, "go", (str(HOME / "go" / "driver"), name), period=period)


def _wire(name: str, part: str, *command: str, environ: tuple[tuple[str, str], ...] = ()) -> Kind:
    """A reference client of pawlock's own protocol (interop/clients), with the namespace that pawlock has by default."""
    own = (*command, name)
    return Kind(name, part, own, OWN, subscribes=True, extends=False, queues=True, environ=environ)


def _rueidis(name: str) -> Kind:
    command = (str(HOME / "go" / "driver"), name)
    return Kind(
        name, "go", command, "rueidislock:0:", subscribes=True, settable=False, ttl=5.0, extends=False
    )


def _java(folder: str, *words: str) -> tuple[str, ...]:
    libraries, classes = HOME / "java" / "lib" / folder, HOME / "java" / "classes" / folder
    options = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
    return ("java", *options, "-cp", f"{classes}:{libraries}/*", "Main", *words)


def _redisson(name: str, folder: str, lock: str) -> Kind:
    subscribes = lock != "spin"
    command = _java(folder, lock)
    return Kind(name, "java", command, hashed=True, period=0.2, subscribes=subscribes, extends=False)


def _spring(name: str, prefix: str, *, period: float = 0.2, asks: bool = True, extends: bool = True) -> Kind:
    settable = not name.startswith("spring")
    return Kind(
        name,
        "java",
        _java("spring", name),
        prefix,
        period=period,
        asks=asks,
        settable=settable,
        extends=extends,
    )


_ALL = (
    _pawlock("pawlock"),
    _pawlock("pawlock-asyncio"),
    # Generations of a migration, see test_migration.py.
    *map(
        _pawlock, ("pawlock-key", "pawlock-both", "pawlock-name", "pawlock-redisson", "pawlock-redisson-both")
    ),
    *map(
        _pawlock, ("pawlock-pyredislock", "pawlock-pyredislock-both", "pawlock-spring", "pawlock-spring-both")
    ),
    *map(_pawlock, ("pawlock-rueidis", "pawlock-rueidis-both")),
    _python("redis-py", period=0.1),
    # Its waiters sleep until one of its own releases, or for as long as its expiry.
    _python("pyredislock", "lock:", period=float("inf")),
    _python("pottery", "redlock:", period=0.2),
    _python("aioredlock", period=0.1),
    _node("redlock4"),
    _node("redlock5"),
    _node("ioredis", period=0.05),
    _node("redis-semaphore", "mutex:", period=0.01, extends=False),
    _node("sample-js", period=0.05),
    _go("redsync", period=0.25),
    _go("redsync-setnx", period=0.25),
    _go("bsm", period=0.05),
    _rueidis("rueidis1"),
    _rueidis("rueidis"),
    _go("sample-go", period=0.05),
    _wire("gowire", "go", str(HOME / "go" / "driver")),
    _wire("nodewire", "node", *_NODE, environ=_MODULES),
    _spring("spring", "locks:", period=0.1),
    _spring("springpub", "locks:", period=float("inf")),
    _spring("shedlock", "job-lock:default:", asks=False, extends=False),
    _spring("shedlock-safe", "job-lock:default:", extends=False),
    _spring("simple-java", "lock:", period=0.05, extends=False),
    _spring("retry-java", ""),
    _redisson("redisson", "redisson4", "lock"),
    _redisson("redisson-spin", "redisson4", "spin"),
    _redisson("redisson-fenced", "redisson4", "fenced"),
    _redisson("redisson-fair", "redisson4", "fair"),
    _redisson("redisson-write", "redisson4", "write"),
    _redisson("redisson-read", "redisson4", "read"),
    _redisson("redisson3", "redisson3", "lock"),
    _redisson("redisson3-spin", "redisson3", "spin"),
    _redisson("redisson3-fenced", "redisson3", "fenced"),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}


def register(definition: str) -> None:
    """Add a kind from a command line: ``NAME=COMMAND``, or ``NAME@PREFIX=COMMAND`` where keys need a prefix."""
    name, _, command = definition.partition("=")
    name, _, prefix = name.partition("@")
    if not name or not command:
        raise SystemExit(f"--driver {definition}: NAME=COMMAND is wanted")
    KINDS[name] = Kind(name, "", tuple(command.split()), prefix)


def missing(kind: Kind) -> str:
    """Say why a kind cannot run on this machine; ``""`` when it can."""
    for program in NEEDS.get(kind.part, ()):
        if shutil.which(program) is None:
            return f"no {program} on PATH"
    if kind.part and not (HOME / kind.part / "installed").exists():
        return f"the interop drivers for {kind.part} are not installed (make interop)"
    return ""


def common_key(kinds: Sequence[Kind], name: str) -> str:
    """The key of a name that all of these kinds can lock.

    Raises:
        SystemExit: Two of them want different prefixes.
    """
    prefixes = sorted({kind.prefix for kind in kinds if kind.prefix})
    if len(prefixes) > 1:
        raise SystemExit(f"these have no key in common: their keys begin with {' and with '.join(prefixes)}")
    return "".join(prefixes) + name


def wire_of(kinds: Sequence[Kind]) -> dict[str, str]:
    """What the drivers are told of a mix, so that pawlock's store what the others store."""
    hashed = [kind.name for kind in kinds if kind.hashed]
    if not hashed:
        own = any(kind.queues and kind.prefix for kind in kinds)
        return {"PAWLOCK_WIRE": "own"} if own else {}
    special = [what for what in ("fenced", "spin") if any(name.endswith(what) for name in hashed)]
    return {"PAWLOCK_WIRE": "-".join(["redisson", *special])}
