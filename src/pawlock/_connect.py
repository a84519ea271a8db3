"""``connect`` and ``connect_async``: the entry points of the sync and the async API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock._hints import refuse_more
from pawlock._system import check_greenlets
from pawlock._unset import UNSET, Unset
from pawlock.core.options import check_deadlock_after
from pawlock.topology.credentials import Credentials

if TYPE_CHECKING:
    from typing import Unpack

    from pawlock.aio.client import AsyncClient
    from pawlock.core.options import LockKwargs, Seconds
    from pawlock.redlock.options import RedlockOptions
    from pawlock.sync.client import Client
    from pawlock.topology.credentials import CredentialProvider

__all__ = ["connect", "connect_async"]


def connect(
    target: object = None,
    *more: *tuple[()],
    namespace: str | None = None,
    username: str | None = None,
    password: str | None = None,
    credential_provider: CredentialProvider | None = None,
    redlock: RedlockOptions | None = None,
    fence_ttl: Seconds | None = None,
    deadlock_after: Seconds | Unset | None = UNSET,
    request_timeout: Seconds | None = None,
    connect_timeout: Seconds | None = None,
    **options: Unpack[LockKwargs],
) -> Client:
    """A client for threads. Nothing is sent before its first use.

    Args:
        target: A URL (``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://``, ``redis+cluster://``,
            ``embedded://``, ``etcd://a,b,c``), a list of URLs of independent masters or ``redlock://a,b,c`` (a majority
            of them grants), a client of redis-py or valkey-py whose address and login are taken over (its pool stays
            untouched), or None: ``PAWLOCK_URL`` if it is set at the first use, else the embedded server of this user
            and machine.
        more: None. All else is given by name: more by position is a ``TypeError`` that says so.
        namespace: What all keys begin with; default ``PAWLOCK_NAMESPACE``, else ``"pawlock"``. ``""`` uses the name itself
            as the key, so that other clients of the plain SET NX PX pattern and pawlock exclude each other.
        username: The server's ACL user, where the URL has none; default the server's default user.
        password: Its password, where the URL has none. Of Sentinels themselves: ``?sentinel_password=`` in the URL.
        credential_provider: An object whose ``get_credentials()`` gives ``(password,)`` or ``(username, password)``,
            as redis-py's providers do. Asked for each connection, so credentials may change while locks are held.
        redlock: How several independent masters are treated; None (default): as ``RedlockOptions()`` says.
        fence_ttl: Seconds for which the server keeps the last fencing token of a lock after its last use, and at least
            as long as a lease; default 3600 (an hour: longer than clocks are apart), at most 366 days. 0: no longer
            than the lease, so that an idle lock leaves nothing behind. After that time tokens still increase with the
            server's clock, unless it was set back meanwhile.
        deadlock_after: After how many seconds of waiting a waiter looks for a cycle of waiters, and raises
            ``DeadlockDetected`` if it is the last of one; default 1, at least 0.02. None never looks.
        request_timeout: Seconds to wait for one answer of the server before the request counts as unanswered; more than
            0, and at most a third of the ttl of each lock. None (default): ``PAWLOCK_REQUEST_TIMEOUT`` if it is set,
            else 1, with a ttl or ``ticket_ttl`` below 3 a third of that: for a server within half a second.
        connect_timeout: Seconds for the connect (of TCP and TLS), and for the login again; more than 0, and what is
            below 0.25 counts as 0.25. None (default): ``PAWLOCK_CONNECT_TIMEOUT`` if it is set, else as long as for one
            answer.
        options: Defaults of its locks: every option of ``pawlock.LockOptions``, such as ttl, timeout or on_lost, which
            takes a lost lease in a thread of its own. A ttl or timeout that is not given comes from ``PAWLOCK_TTL`` and
            ``PAWLOCK_TIMEOUT``, if they are set. Permits and a fair lock pass over handover, a multi-lock over
            on_unavailable.

    Raises:
        ConfigurationError: A value that can never work; nothing was sent.
        NotSupported: A topology that this version does not have, or greenlets that would count as one thread.
    """
    check_greenlets()
    # Each loads what it needs: half of the time to start is the other one's.
    from pawlock.sync.client import Client

    credentials = Credentials(username, password, credential_provider)
    return Client(
        target,
        namespace=namespace,
        credentials=credentials,
        redlock=redlock,
        **_given(
            more,
            deadlock_after,
            fence_ttl=fence_ttl,
            request_timeout=request_timeout,
            connect_timeout=connect_timeout,
            **options,
        ),
    )


def connect_async(
    target: object = None,
    *more: *tuple[()],
    namespace: str | None = None,
    username: str | None = None,
    password: str | None = None,
    credential_provider: CredentialProvider | None = None,
    redlock: RedlockOptions | None = None,
    fence_ttl: Seconds | None = None,
    deadlock_after: Seconds | Unset | None = UNSET,
    request_timeout: Seconds | None = None,
    connect_timeout: Seconds | None = None,
    **options: Unpack[LockKwargs],
) -> AsyncClient:
    """A client for asyncio; an async context manager. Nothing is sent before its first use.

    Args:
        target: As for ``connect``.
        more: As for ``connect``.
        namespace: As for ``connect``.
        username: As for ``connect``.
        password: As for ``connect``.
        credential_provider: As for ``connect``; one with ``get_credentials_async`` is asked by that.
        redlock: As for ``connect``.
        fence_ttl: As for ``connect``.
        deadlock_after: As for ``connect``.
        request_timeout: As for ``connect``.
        connect_timeout: As for ``connect``.
        options: As for ``connect``; on_lost is a function or coroutine function.

    Raises:
        ConfigurationError: A value that can never work; nothing was sent.
        NotSupported: As for ``connect``.
    """
    check_greenlets()
    from pawlock.aio.client import AsyncClient

    credentials = Credentials(username, password, credential_provider)
    return AsyncClient(
        target,
        namespace=namespace,
        credentials=credentials,
        redlock=redlock,
        **_given(
            more,
            deadlock_after,
            fence_ttl=fence_ttl,
            request_timeout=request_timeout,
            connect_timeout=connect_timeout,
            **options,
        ),
    )


def _given(
    more: tuple[object, ...], deadlock_after: Seconds | Unset | None, **options: object
) -> dict[str, object]:
    if more:
        text = 'pawlock.connect("redis://localhost:6379/0"), and with several masters pawlock.connect([url, url, url])'
        refuse_more("connect", text)
    if not isinstance(deadlock_after, Unset):
        options["deadlock_after"] = check_deadlock_after(deadlock_after)
    return {option: value for option, value in options.items() if value is not None}
