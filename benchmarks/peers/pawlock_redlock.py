"""pawlock on several independent masters, at its defaults but for masters that are younger than a lease."""

from __future__ import annotations

from benchmarks.peers.base import Handle, Options, Peer


class _Session:
    def __init__(self, url: str) -> None:
        import pawlock

        self._client = pawlock.connect(url, redlock=pawlock.RedlockOptions(fresh=True))

    def handle(self, name: str) -> Handle:
        lock = self._client.lock(name)
        return Handle(
            acquire=lock.acquire, release=lambda lease: lease.release(), fence=lambda lease: lease.fence
        )

    def close(self) -> None:
        self._client.close()


class _AsyncSession:
    def __init__(self, url: str) -> None:
        import pawlock

        self._client = pawlock.connect_async(url, redlock=pawlock.RedlockOptions(fresh=True))

    async def handle(self, name: str) -> Handle:
        lock = self._client.lock(name)
        return Handle(
            acquire=lock.acquire, release=lambda lease: lease.release(), fence=lambda lease: lease.fence
        )

    async def close(self) -> None:
        await self._client.close()


def _open(url: str, options: Options) -> _Session:
    del options
    return _Session(url)


async def _open_async(url: str, options: Options) -> _AsyncSession:
    del options
    return _AsyncSession(url)


PEER = Peer(
    key="pawlock-redlock",
    label="pawlock",
    modules=("pawlock",),
    distributions=("pawlock", "redis", "hiredis"),
    commands=frozenset({"evalsha", "eval"}),
    open=_open,
    open_async=_open_async,
)
