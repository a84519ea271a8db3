# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""A lock around a block, or until the transaction around it has ended."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, cast

import pawlock
from pawlock.integrations.django._settings import client

__all__ = ["lock"]

_log = logging.getLogger("pawlock.integrations.django")

_Leases: TypeAlias = "dict[pawlock.Lease, weakref.finalize[..., Any]]"
"""What a transaction holds until it has ended, and what releases each."""


@contextmanager
def lock(
    name: str, *, until: Literal["block", "commit"] = "block", using: str | None = None, **options: Any
) -> Generator[pawlock.Lease]:
    """Hold a lock for a block, or until the transaction that the block is in has been committed or rolled back.

    A lock that is released inside a transaction lets the next holder read what was there before the commit.
    ``until="commit"`` releases it right after the commit, or after the rollback of the transaction or of the inner
    ``atomic()`` in which it was acquired. If the lease was lost meanwhile, the commit raises ``LeaseLost`` instead and
    the transaction is rolled back.

    Args:
        name: The name of the lock; ``{{`` stands for a brace.
        until: ``"block"`` (default) or ``"commit"``.
        using: The database whose transaction counts; default the default one.
        options: Options of ``client.lock``, as ``timeout`` and ``ttl``.

    Yields:
        The lease, with the fencing token.

    Raises:
        AcquireTimeout: Another client still held it at the end of ``timeout``.
        BackendError: The server could not be reached.
        LeaseLost: The lease was lost before the end of the block, or before the commit.
        ConfigurationError: An option can never work, or ``until="commit"`` outside ``transaction.atomic()``.
    """
    if until == "block":
        with client().lock(name, **options) as lease:
            yield lease
        return
    if until != "commit":
        raise pawlock.ConfigurationError(f"until must be 'block' or 'commit', got {until!r:.40}")
    from django.db import transaction

    connection: Any = transaction.get_connection(using)
    if not connection.in_atomic_block:
        raise pawlock.ConfigurationError(
            f"{name!r}: until='commit' needs a transaction: use it inside transaction.atomic()"
        )
    lease = client().lock(name, **options).acquire()
    try:
        connection.on_commit(_Until(connection, lease))
    except BaseException:
        lease.release()
        raise
    yield lease
    lease.check()


class _Until:
    """Releases a lease when Django drops it, which is what a rollback does, or calls it, which tests do.

    Only the connection's list of callbacks refers to it.
    """

    def __init__(self, connection: Any, lease: pawlock.Lease) -> None:
        leases: _Leases | None = getattr(connection, "_pawlock_leases", None)
        if leases is None:
            commit = _commit_of(connection)
            leases = connection._pawlock_leases = {}  # noqa: SLF001 - one attribute of a connection of Django's
            connection.commit = functools.partial(_commit, weakref.ref(connection), commit)
        self._release = leases[lease] = weakref.finalize(self, _release, leases, lease)
        self._release.atexit = False  # the client ends its leases itself

    def __call__(self) -> None:
        self._release()


def _commit_of(connection: Any) -> Callable[[Any], None]:
    """What commits now, without a reference to the connection unless somebody else has put it there."""
    commit = connection.commit
    if getattr(commit, "__self__", None) is connection:
        return cast("Callable[[Any], None]", commit.__func__)
    return lambda _connection: commit()


def _commit(reference: Callable[[], Any], commit: Callable[[Any], None]) -> None:
    """Commit unless a lease was lost: Django has no callback before the commit."""
    connection = reference()
    leases: _Leases = connection._pawlock_leases  # noqa: SLF001 - one attribute of a connection of Django's
    for lease in leases:
        try:
            lease.check()
        except pawlock.LeaseLost:
            # Django rolls back by itself only for errors of the database.
            connection.rollback()
            raise
    commit(connection)
    # Not only when Django calls: a callback before ours may take long, or raise.
    for release in tuple(leases.values()):
        release()


def _release(leases: _Leases, lease: pawlock.Lease) -> None:
    leases.pop(lease, None)
    try:
        lease.release()
    except pawlock.NotHeld:
        _log.debug("%r was lost or released before the end of its transaction", lease.name)
    except pawlock.PawlockError as error:
        _log.warning(
            "%r could not be released after its transaction; its TTL ends it: %s", lease.name, str(error)
        )
