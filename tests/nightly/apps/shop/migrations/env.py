"""Alembic's entry: several hosts start at once, and one of them migrates."""

from alembic import context
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from tests.nightly.apps.shop.database import Base, engine
from tests.nightly.apps.shop.locks import locks


def is_current(connection: Connection) -> bool:
    found = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    return found == ScriptDirectory.from_config(context.config).get_current_head()


with engine().connect() as database:
    if not is_current(database):
        with locks.lock("migrate", timeout=60) as lease:
            if not is_current(database):  # it may have been done while this host waited
                context.configure(connection=database, target_metadata=Base.metadata)
                lease.check()
                with context.begin_transaction():
                    context.run_migrations()
                print("migrated")
locks.close()
