"""pawlock for Alembic: hosts that start at once migrate a database once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pawlock
from pawlock.integrations._names import plain

__all__ = ["migration_lock"]


@contextmanager
def migration_lock(
    client: object = None, *, name: str | None = None, **options: Any
) -> Generator[pawlock.Lease | None]:
    """Hold a lock around ``context.run_migrations()`` in ``env.py``, if there is anything to migrate.

    Call it after ``context.configure()`` and outside ``context.begin_transaction()``. It reads the database's revision
    before it asks for the lock: where nothing is to do, the lock server is not asked and nobody waits. It reads again
    once it has the lock, since another host may have migrated meanwhile; ``run_migrations()`` then does nothing. After
    each migration, before its transaction is committed, it checks the lease: one that was lost rolls it back.

    Args:
        client: A client of ``pawlock.connect()``, or what that takes: a URL, a Redis client, None (default) for
            ``PAWLOCK_URL``. A client that is made here is closed at the end.
        name: The name of the lock; default ``alembic:`` and the name of the database. Give one where two databases of
            one name share a lock server.
        options: Options of ``client.lock``, as ``timeout``: how long to wait for another host, default indefinitely.

    Yields:
        The lease while there is something to migrate; None with nothing to do, for commands that only read
        (``current``, ``check``, ``revision``) and with ``--sql``. Run the migrations in either case.

    Raises:
        AcquireTimeout: Another host was still migrating at the end of ``timeout``.
        BackendError: The lock server could not be reached.
        LeaseLost: The lease was lost while migrating.
        ConfigurationError: There is no context yet, or a client or option can never work.
    """
    from alembic import context

    try:
        migrating: Any = context.get_context()
    except Exception as error:
        raise pawlock.ConfigurationError("migration_lock: call context.configure() before it") from error
    if not _pending(migrating):
        yield None
        return
    if isinstance(client, pawlock.AsyncClient):
        raise pawlock.ConfigurationError(
            "migration_lock: env.py runs in a thread; pass a client of pawlock.connect()"
        )
    locks = client if isinstance(client, pawlock.Client) else pawlock.connect(client)
    try:
        with locks.lock(_name_of(migrating) if name is None else name, **options) as lease:
            if _pending(migrating):
                with _checked(migrating, lease):
                    yield lease
            else:
                yield None
    finally:
        if locks is not client:
            locks.close()


def _pending(migrating: Any) -> bool:
    """Whether the command would change the database as it is now. Leaves no transaction open that it began."""
    options = migrating.opts
    if migrating.as_sql or "destination_rev" not in options:  # only these commands change revisions
        return False
    if options.get("purge"):
        return True
    connection = migrating.connection
    within = connection.in_transaction()
    heads = migrating.get_current_heads()
    try:
        # What `run_migrations` does first: it plans the steps, and changes nothing.
        return any(True for _ in options["fn"](heads, migrating))
    finally:
        if not within and connection.in_transaction():
            connection.rollback()


@contextmanager
def _checked(migrating: Any, lease: pawlock.Lease) -> Generator[None]:
    """Check the lease after each migration, inside the transaction of that migration."""
    before = tuple(migrating.on_version_apply_callbacks)

    def check(**_step: object) -> None:
        lease.check()

    migrating.on_version_apply_callbacks = (check, *before)
    try:
        yield
    finally:
        migrating.on_version_apply_callbacks = before


def _name_of(migrating: Any) -> str:
    database = str(migrating.connection.engine.url.database or "").replace("\\", "/").rpartition("/")[2]
    parts = ["alembic", database[-60:], migrating.version_table_schema or ""]
    return plain(":".join(filter(None, parts)))
