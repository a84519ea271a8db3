"""The tables: a stock that is guarded by fencing tokens, and what was sold and reported."""

import os

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import ConnectionPoolEntry

from pawlock.fencing import FencedMixin


class Base(DeclarativeBase):
    pass


class Stock(FencedMixin, Base):
    __tablename__ = "stock"
    product: Mapped[str] = mapped_column(primary_key=True)
    left: Mapped[int]


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    product: Mapped[str]
    token: Mapped[int]


class Report(Base):
    __tablename__ = "reports"
    id: Mapped[int] = mapped_column(primary_key=True)
    day: Mapped[str]
    worker: Mapped[int]


def engine() -> Engine:
    found = create_engine(os.environ["SHOP_DATABASE"], connect_args={"timeout": 60})

    @event.listens_for(found, "connect")
    def wait_for_writers(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.close()

    return found
