"""The mixin for SQLAlchemy, in both colours, on SQLite."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pawl
from pawl.fencing import FencedMixin


class Base(DeclarativeBase):
    pass


class Stock(FencedMixin, Base):
    __tablename__ = "stock"

    product: Mapped[str] = mapped_column(primary_key=True)
    left: Mapped[int]


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Stock(product="tea", left=10))
        session.commit()
        yield session
    engine.dispose()


def test_a_late_holder_writes_nothing(session: Session) -> None:
    tea = session.get_one(Stock, "tea")
    assert tea.fence == 0
    assert Stock.write(session, 100, Stock.product == "tea", left=Stock.left - 1)
    assert Stock.write(session, 200, Stock.product == "tea", left=Stock.left - 1)
    assert Stock.write(session, 200, Stock.product == "tea", left=Stock.left - 1)
    with pytest.raises(pawl.StaleFence, match="200") as caught:
        Stock.write(session, 199, Stock.product == "tea", left=0)
    assert caught.value.fence == 199
    assert (tea.left, tea.fence) == (7, 200), "the session's own object was read anew"


def test_no_row_is_not_a_late_holder(session: Session) -> None:
    assert Stock.write(session, 100, Stock.product == "salt", left=1) is False
    assert Stock.write(session, 100, Stock.product == "tea", Stock.left > 10, left=1) is False


def test_fence_0_and_bad_calls_are_refused(session: Session) -> None:
    with pytest.raises(pawl.StaleFence, match="degraded"):
        Stock.write(session, 0, Stock.product == "tea", left=1)
    with pytest.raises(pawl.ConfigurationError, match="condition"):
        Stock.write(session, 1, left=1)
    with pytest.raises(pawl.ConfigurationError, match="fence"):
        Stock.write(session, 1, Stock.product == "tea", fence=7)


@pytest.mark.parametrize("dialect", [postgresql.dialect(), mysql.dialect()], ids=["postgresql", "mysql"])
def test_the_statement_compares_in_every_dialect(dialect: Dialect) -> None:
    text = str(Stock.fenced_update(7).where(Stock.product == "tea").compile(dialect=dialect))
    assert "WHERE stock.fence <= " in text
    assert "SET fence=" in text


class Awaited:
    """A session of asyncio as far as it is used, since no driver of asyncio is installed with pawl."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def execute(self, statement: object) -> object:
        return self._session.execute(statement)  # type: ignore[call-overload]


async def test_asyncio_says_the_same(session: Session) -> None:
    awaited = Awaited(session)
    assert await Stock.write_async(awaited, 200, Stock.product == "tea", left=9)  # type: ignore[arg-type]
    with pytest.raises(pawl.StaleFence):
        await Stock.write_async(awaited, 199, Stock.product == "tea", left=8)  # type: ignore[arg-type]
    assert await Stock.write_async(awaited, 1, Stock.product == "salt", left=8) is False  # type: ignore[arg-type]


def test_without_sqlalchemy_one_line_says_what_to_install() -> None:
    program = """
import sys
sys.modules["sqlalchemy"] = None
import pawl.fencing
assert pawl.fencing.FencedTable
try:
    pawl.fencing.FencedMixin
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "pawl.fencing.FencedMixin needs SQLAlchemy 2: pip install 'pawlock[sqlalchemy]'\n"


def test_the_package_loads_neither_sqlalchemy_nor_redis() -> None:
    program = "import sys, pawl.fencing; print(sorted({'sqlalchemy', 'redis', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
