"""Other Python libraries, each in an environment of its own, on one server or on several independent masters."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from benchmarks.peers.base import Handle, Options, Peer, Session
from benchmarks.peers.installed import CACHE, ready

TTL = 30.0


def _ports(url: str) -> list[int]:
    hosts = url.partition("://")[2].split("/")[0]
    return [int(host.rpartition(":")[2]) for host in hosts.split(",")]


def _pottery(url: str, _: Options) -> Session:
    import redis
    from pottery import Redlock  # type: ignore[import-untyped,import-not-found,unused-ignore]

    masters = {redis.Redis(port=port) for port in _ports(url)}

    def handle(name: str) -> Handle:
        lock = Redlock(key=name, masters=masters, auto_release_time=TTL)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())

    return handle


def _ng(kind: str, url: str) -> Session:
    import redlock  # type: ignore[import-untyped,import-not-found,unused-ignore]

    manager: Any = vars(redlock)[kind]([f"redis://127.0.0.1:{port}/0" for port in _ports(url)])

    def handle(name: str) -> Handle:
        acquire = partial(manager.acquire, name, int(TTL * 1000), blocking=True)
        return Handle(acquire=acquire, release=manager.release)

    return handle


def _redlock_ng(url: str, _: Options) -> Session:
    return _ng("Redlock", url)


async def _async_redlock_ng(url: str, _: Options) -> Session:
    return _ng("AsyncRedlock", url)


async def _aioredlock(url: str, _: Options) -> Session:
    import logging

    from aioredlock import Aioredlock  # type: ignore[import-untyped,import-not-found,unused-ignore]

    # It says of every try without success that it had none.
    logging.disable(logging.CRITICAL)
    # Three tries by default: a contended lock needs more.
    manager: Any = Aioredlock([("127.0.0.1", port) for port in _ports(url)], retry_count=10**6)
    return lambda name: Handle(acquire=lambda: manager.lock(name, lock_timeout=TTL), release=manager.unlock)


def _command(name: str, job: str) -> list[str]:
    return [str(CACHE / name / "bin" / "python"), "-m", "benchmarks.worker", job]


def _lacks(name: str, version: str) -> str | None:
    if name == "aioredlock" and sys.version_info >= (3, 12):
        return "its client aioredis 1.3.1 cannot be imported on Python 3.12 and later"
    # hiredis for all of them: a library is not to lose for want of a parser.
    pip = (str(CACHE / name / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", "hiredis")
    return ready(name, (), (sys.executable, "-m", "venv", "."), (*pip, f"{name}=={version}"))


def _peer(name: str, version: str, **opens: Any) -> Peer:  # noqa: ANN401 - of either API
    return Peer(
        name,
        name,
        commands=frozenset({"set", "evalsha", "eval"}),
        program=partial(_command, name),
        lacks=partial(_lacks, name, version),
        stated={name: version},
        **opens,
    )


PEERS = (
    _peer("pottery", "3.0.1", open=_pottery),
    _peer("redlock-ng", "2.0.4", open=_redlock_ng, open_async=_async_redlock_ng),
    _peer("aioredlock", "0.7.3", open_async=_aioredlock),
)
