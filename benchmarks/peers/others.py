"""Other Python libraries, each in an environment of its own, on one server or on several independent masters.

`best` stands for what helps a library most: a pause of a millisecond where it polls, hiredis in all of them.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from benchmarks.peers import installs
from benchmarks.peers.base import Handle, Options, Peer

TTL = 30.0


def _ports(url: str) -> list[int]:
    hosts = url.partition("://")[2].split("/")[0]
    return [int(host.rpartition(":")[2]) for host in hosts.split(",")]


class _Session:
    def close(self) -> None:
        """End with the process."""


class _AsyncSession:
    async def close(self) -> None:
        """End with the process."""


class _Pottery(_Session):
    def __init__(self, url: str, options: Options) -> None:
        del options
        import redis
        from pottery import Redlock  # type: ignore[import-untyped,import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports, reportMissingTypeStubs, reportUnknownVariableType]

        self._kind: Any = Redlock
        self._masters = {redis.Redis(port=port) for port in _ports(url)}

    def handle(self, name: str) -> Handle:
        lock = self._kind(key=name, masters=self._masters, auto_release_time=TTL)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())


class _Sherlock(_Session):
    def __init__(self, url: str, options: Options) -> None:
        import redis
        import sherlock  # type: ignore[import-untyped,import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

        self._kind: Any = sherlock.RedisLock  # pyright: ignore[reportUnknownMemberType]
        self._client = redis.Redis(port=_ports(url)[0])
        # It gives up after 10 s by default.
        self._options: dict[str, float] = {"expire": int(TTL), "timeout": 3600}
        if options.get("best"):
            self._options["retry_interval"] = 0.001

    def handle(self, name: str) -> Handle:
        lock = self._kind(name, client=self._client, **self._options)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())


class _RedlockNg(_Session):
    def __init__(self, url: str, options: Options) -> None:
        del options
        import redlock  # type: ignore[import-untyped,import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

        manager: Any = vars(redlock)["Redlock"]
        self._manager: Any = manager([f"redis://127.0.0.1:{port}/0" for port in _ports(url)])

    def handle(self, name: str) -> Handle:
        acquire = partial(self._manager.acquire, name, int(TTL * 1000), blocking=True)
        return Handle(acquire=acquire, release=self._manager.release)


class _AsyncRedlockNg(_AsyncSession):
    def __init__(self, url: str) -> None:
        import redlock  # type: ignore[import-untyped,import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

        manager: Any = vars(redlock)["AsyncRedlock"]
        self._manager: Any = manager([f"redis://127.0.0.1:{port}/0" for port in _ports(url)])

    async def handle(self, name: str) -> Handle:
        acquire = partial(self._manager.acquire, name, int(TTL * 1000), blocking=True)
        return Handle(acquire=acquire, release=self._manager.release)


class _Aioredlock(_AsyncSession):
    def __init__(self, url: str) -> None:
        import logging

        from aioredlock import Aioredlock  # type: ignore[import-untyped,import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports, reportMissingTypeStubs, reportUnknownVariableType]

        # It says of every try in vain that it was in vain.
        logging.disable(logging.CRITICAL)
        manager: Any = Aioredlock
        # Three tries by default: a contended lock needs more.
        self._manager: Any = manager([("127.0.0.1", port) for port in _ports(url)], retry_count=10**6)

    async def handle(self, name: str) -> Handle:
        return Handle(
            acquire=lambda: self._manager.lock(name, lock_timeout=TTL), release=self._manager.unlock
        )


async def _open_redlock_ng(url: str, options: Options) -> _AsyncRedlockNg:
    del options
    return _AsyncRedlockNg(url)


async def _open_aioredlock(url: str, options: Options) -> _Aioredlock:
    del options
    return _Aioredlock(url)


def _command(name: str, job: str) -> list[str]:
    return [str(installs.python(name)), "-m", "benchmarks.worker", job]


def _why(name: str, label: str, requirements: tuple[str, ...]) -> str | None:
    if name == "aioredlock" and sys.version_info >= (3, 12):
        return f"{label}: its client aioredis 1.3.1 cannot be imported on Python 3.12 and later"
    reason = installs.venv(name, *requirements)
    return None if reason is None else f"{label}: {reason}"


def _peer(
    key: str,
    requirements: tuple[str, ...],
    commands: frozenset[str] = frozenset({"set", "evalsha", "eval"}),
    **opens: Any,  # noqa: ANN401 - of either API
) -> Peer:
    # hiredis for all of them: a library is not to lose for want of a parser.
    wanted = (*requirements, "hiredis")
    return Peer(
        key=key,
        label=key,
        modules=(),
        distributions=(),
        commands=commands,
        program=partial(_command, key),
        lacks=partial(_why, key, key, wanted),
        stated={
            requirement.partition("==")[0]: requirement.partition("==")[2] for requirement in requirements
        },
        **opens,
    )


POTTERY = _peer("pottery", ("pottery==3.0.1",), open=_Pottery)
SHERLOCK = _peer("sherlock", ("sherlock==0.4.1", "redis==8.1.0"), open=_Sherlock)
REDLOCK_NG = _peer("redlock-ng", ("redlock-ng==2.0.4",), open=_RedlockNg, open_async=_open_redlock_ng)
AIOREDLOCK = _peer(
    "aioredlock", ("aioredlock==0.7.3",), frozenset({"evalsha", "eval"}), open_async=_open_aioredlock
)
