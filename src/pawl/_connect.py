"""``connect`` and ``connect_async``: one door for each colour, spelled alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pawl.topology.credentials import Credentials

if TYPE_CHECKING:
    from pawl.aio import AsyncClient
    from pawl.core.options import Seconds
    from pawl.core.redlock import RedlockOptions
    from pawl.sync import Client
    from pawl.topology.credentials import CredentialProvider

__all__ = ["connect", "connect_async"]


def connect(
    target: object = None,
    *,
    namespace: str | None = None,
    ttl: Seconds | None = None,
    timeout: Seconds | None = None,
    renew: bool | None = None,
    max_hold: Seconds | None = None,
    on_lost: Callable[[Any], object] | None = None,
    fence_ttl: Seconds | None = None,
    username: str | None = None,
    password: str | None = None,
    credential_provider: CredentialProvider | None = None,
    redlock: RedlockOptions | None = None,
    strict: bool = False,
    deadlock_after: Seconds | None = 1.0,
    history: int = 0,
) -> Client:
    """A client for threads. Nothing is sent before its first use.

    Args:
        target: A URL (``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://``, ``redis+cluster://``,
            ``embedded://``), a list of URLs of independent masters or ``redlock://a,b,c`` (a majority of them
            grants), ``http+pawl://token@host:port`` or ``https+pawl://…`` (a ``pawl serve``), a client
            of redis-py or valkey-py whose address and login are taken over (its pool stays untouched), or None:
            ``PAWL_URL`` if it is set, else the embedded server of this user and machine.
        namespace: What all keys begin with; default ``PAWL_NAMESPACE``, else ``"pawl"``. ``""`` uses the name itself
            as the key, so that other clients of the plain SET NX PX pattern and pawl exclude each other.
        ttl: Default ttl of its locks in seconds; default ``PAWL_TTL``, else 30.
        timeout: Default wait of its locks in seconds; default ``PAWL_TIMEOUT``, else as long as it takes; 0 tries.
        renew: Whether its leases are renewed while they are held; default True.
        max_hold: Default end of renewal in seconds; default never.
        on_lost: Called with a lease that was lost, in a thread of its own.
        fence_ttl: Seconds that the server keeps a name's fence after its last use, and a semaphore's limit with it;
            default ``PAWL_FENCE_TTL``, else a day; at most 366 days. 0 keeps nothing of an idle name: its next fence
            is then larger only as long as the server's clock is not set back.
        username: The server's ACL user, where the URL has none; default the server's default user.
        password: Its password, where the URL has none. Of Sentinels themselves: ``?sentinel_password=`` in the URL.
        credential_provider: An object whose ``get_credentials()`` gives ``(password,)`` or ``(username, password)``,
            as redis-py's providers do. Asked for each connection, so credentials may change while locks are held.
        redlock: How several independent masters are treated; None (default): as ``RedlockOptions()`` says.
        strict: True to refuse a server whose settings break a promise (eviction that removes locks, a replica, a
            version too old) with ``NotSupported`` at the first acquisition. False (default) only logs what was found, a
            second after the first use. What a server will not tell is not held against it.
        deadlock_after: After how many seconds of waiting a waiter looks for a cycle of waiters, and raises
            ``DeadlockDetected`` if it is the last of one; default 1, at least 0.02. None or 0 never looks.
        history: How many grants of each ``lock``, ``rlock`` and ``fair_lock`` are kept on the server for
            ``Client.history``, at most 1,000; each name's are kept for seven days after the last. Default 0: none.

    Raises:
        ConfigurationError: A value that can never work; nothing was sent.
        NotSupported: A topology that this version does not have.
    """
    # Each loads what it needs: half of the time to start is the other one's.
    from pawl.sync import Client

    defaults = {"ttl": ttl, "timeout": timeout, "renew": renew, "max_hold": max_hold, "on_lost": on_lost}
    defaults |= {"deadlock_after": 0.0 if deadlock_after is None else deadlock_after, "fence_ttl": fence_ttl}
    credentials = Credentials(username, password, credential_provider)
    return Client(
        target,
        namespace=namespace,
        credentials=credentials,
        redlock=redlock,
        strict=strict,
        history=history,
        **{k: v for k, v in defaults.items() if v is not None},
    )


def connect_async(
    target: object = None,
    *,
    namespace: str | None = None,
    ttl: Seconds | None = None,
    timeout: Seconds | None = None,
    renew: bool | None = None,
    max_hold: Seconds | None = None,
    on_lost: Callable[[Any], object] | None = None,
    fence_ttl: Seconds | None = None,
    username: str | None = None,
    password: str | None = None,
    credential_provider: CredentialProvider | None = None,
    redlock: RedlockOptions | None = None,
    strict: bool = False,
    deadlock_after: Seconds | None = 1.0,
    history: int = 0,
) -> AsyncClient:
    """A client for asyncio; an async context manager. Nothing is sent before its first use.

    Args:
        target: As for ``connect``.
        namespace: As for ``connect``.
        ttl: As for ``connect``.
        timeout: As for ``connect``.
        renew: As for ``connect``.
        max_hold: As for ``connect``.
        on_lost: A function or coroutine function, called with a lease that was lost.
        fence_ttl: As for ``connect``.
        username: As for ``connect``.
        password: As for ``connect``.
        credential_provider: As for ``connect``; one with ``get_credentials_async`` is asked by that.
        redlock: As for ``connect``.
        strict: As for ``connect``.
        deadlock_after: As for ``connect``.
        history: As for ``connect``.

    Raises:
        ConfigurationError: A value that can never work; nothing was sent.
        NotSupported: A topology that this version does not have.
    """
    from pawl.aio import AsyncClient

    defaults = {"ttl": ttl, "timeout": timeout, "renew": renew, "max_hold": max_hold, "on_lost": on_lost}
    defaults |= {"deadlock_after": 0.0 if deadlock_after is None else deadlock_after, "fence_ttl": fence_ttl}
    credentials = Credentials(username, password, credential_provider)
    return AsyncClient(
        target,
        namespace=namespace,
        credentials=credentials,
        redlock=redlock,
        strict=strict,
        history=history,
        **{k: v for k, v in defaults.items() if v is not None},
    )
