"""The mixin for SQLAlchemy, in the sync and the async API, on real databases."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import BigInteger, ForeignKey, String, select, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pawlock
from pawlock.fencing import FencedMixin
from tests.contract.fencing import databases


class Base(DeclarativeBase):
    pass


class Stock(FencedMixin, Base):
    __tablename__ = "orm_stock"

    product: Mapped[str] = mapped_column(String(20), primary_key=True)
    place: Mapped[str] = mapped_column(String(20), default="here")
    left: Mapped[int]


class Person(FencedMixin, Base):
    """The base of single-table and of concrete inheritance."""

    __tablename__ = "orm_person"

    number: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    name: Mapped[str] = mapped_column(String(20))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "person"}  # noqa: RUF012 - SQLAlchemy's way


class Writer(Person):
    skill: Mapped[str | None] = mapped_column(String(20))
    __mapper_args__ = {"polymorphic_identity": "writer"}  # noqa: RUF012 - SQLAlchemy's way


class Robot(Person):
    __tablename__ = "orm_robot"

    number: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    name: Mapped[str] = mapped_column(String(20))
    fence: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    __mapper_args__ = {"polymorphic_identity": "robot", "concrete": True}  # noqa: RUF012 - SQLAlchemy's way


class Loose(FencedMixin, Base):
    """A table that was made by hand, with a fence that may be NULL."""

    __tablename__ = "orm_loose"

    number: Mapped[int] = mapped_column(primary_key=True)
    left: Mapped[int]
    fence: Mapped[int | None] = mapped_column(BigInteger, nullable=True)  # type: ignore[assignment]


class Sessions:
    """A session with or without asyncio, called alike: every method is awaited."""

    def __init__(self, session: Session, how: str) -> None:
        self.session, self.how = session, how

    async def write(self, cls: Any, lease: Any, *row: Any, **values: Any) -> bool:
        if self.how == "sync":
            return bool(cls.write(self.session, lease, *row, **values))
        return bool(await cls.write_async(Awaited(self.session), lease, *row, **values))

    async def claim(self, cls: Any, lease: Any, *row: Any) -> bool:
        if self.how == "sync":
            return bool(cls.claim(self.session, lease, *row))
        return bool(await cls.claim_async(Awaited(self.session), lease, *row))


class Awaited:
    """A session of asyncio as far as it is used: not every database here has a driver for asyncio."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.identity_map = session.identity_map
        self.get_bind = session.get_bind

    async def execute(self, statement: Any) -> object:
        return self._session.execute(statement)


@pytest.fixture(scope="module")
def engine(database: Any) -> Iterator[sqlalchemy.Engine]:
    dialect, connection = database
    connection.rollback()
    made = databases.engine(dialect, connection)
    Base.metadata.drop_all(made)
    Base.metadata.create_all(made)
    yield made
    Base.metadata.drop_all(made)
    made.dispose()


@pytest.fixture(params=["sync", "async"])
def sessions(engine: sqlalchemy.Engine, request: pytest.FixtureRequest) -> Iterator[Sessions]:
    with Session(engine) as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
        session.add_all([Stock(product="tea", left=10), Stock(product="rye", place="there", left=5)])
        session.commit()
        with warnings.catch_warnings():
            # SQLAlchemy warns where a statement joins nothing: each row of one table with each of another.
            warnings.simplefilter("error")
            yield Sessions(session, request.param)
        session.rollback()


async def test_a_late_holder_writes_nothing(sessions: Sessions) -> None:
    tea = sessions.session.get_one(Stock, "tea")
    assert tea.fence == 0
    assert await sessions.write(Stock, 100, Stock.product == "tea", left=Stock.left - 1)
    assert await sessions.write(Stock, 200, Stock.product == "tea", left=Stock.left - 1)
    assert await sessions.write(Stock, 200, Stock.product == "tea", left=Stock.left - 1)
    with pytest.raises(pawlock.StaleFence, match="200") as caught:
        await sessions.write(Stock, 199, Stock.product == "tea", left=0)
    assert caught.value.fence == 199
    assert (tea.left, tea.fence) == (7, 200)


async def test_the_object_of_the_session_is_what_the_database_has(sessions: Sessions) -> None:
    session = sessions.session
    tea = session.get_one(Stock, "tea")
    rye = session.get_one(Stock, "rye")
    assert await sessions.write(Stock, 100, Stock.product == "tea", left=Stock.left * 2 - 1)
    # Nothing is expired: reading an attribute sends nothing, so it works in asyncio, too.
    assert not sqlalchemy.inspect(tea).expired_attributes
    assert (tea.left, tea.fence) == (19, 100)
    assert await sessions.write(Stock, 100, Stock.product == "tea", left=tea.left - 1)
    assert tea.left == 18, "written once, subtracted once"
    stored = session.execute(select(Stock.left, Stock.fence).order_by(Stock.product)).all()
    assert [tuple(one) for one in stored] == [(5, 0), (18, 100)]
    assert (rye.left, rye.fence) == (5, 0)


async def test_a_claim_refuses_earlier_holders_and_reads_anew(sessions: Sessions, engine: Any) -> None:
    tea = sessions.session.get_one(Stock, "tea")
    assert tea.left == 10
    sessions.session.commit()
    with Session(engine) as other:
        assert Stock.write(other, 100, Stock.product == "tea", left=9)
        other.commit()
    assert await sessions.claim(Stock, 200, Stock.product == "tea")
    assert (tea.left, tea.fence) == (9, 200), "what is read after a claim is what stands there"
    for late in (sessions.claim(Stock, 199, Stock.product == "tea"),
                 sessions.write(Stock, 199, Stock.product == "tea", left=0)):  # fmt: skip
        with pytest.raises(pawlock.StaleFence, match="200"):
            await late
    assert await sessions.claim(Stock, 200, Stock.product == "salt") is False


async def test_all_rows_that_fit_are_written_or_none(sessions: Sessions) -> None:
    assert await sessions.write(Stock, 50, Stock.product == "rye", left=6)
    for late in (
        sessions.write(Stock, 20, Stock.left > 0, left=0),
        sessions.claim(Stock, 20, Stock.left > 0),
    ):
        with pytest.raises(pawlock.StaleFence, match="50"):
            await late
    stored = select(Stock.product, Stock.left, Stock.fence).order_by(Stock.product)
    assert [tuple(one) for one in sessions.session.execute(stored)] == [("rye", 6, 50), ("tea", 10, 0)]
    assert await sessions.write(Stock, 60, Stock.left > 0, left=0)
    assert [tuple(one) for one in sessions.session.execute(stored)] == [("rye", 0, 60), ("tea", 0, 60)]


async def test_no_row_is_not_a_late_holder(sessions: Sessions) -> None:
    assert await sessions.write(Stock, 100, Stock.product == "salt", left=1) is False
    assert await sessions.write(Stock, 100, Stock.product == "tea", Stock.left > 10, left=1) is False


async def test_fence_0_and_bad_calls_are_refused(sessions: Sessions) -> None:
    with pytest.raises(pawlock.StaleFence, match="degraded"):
        await sessions.write(Stock, 0, Stock.product == "tea", left=1)
    with pytest.raises(pawlock.ConfigurationError, match="condition"):
        await sessions.write(Stock, 1, left=1)
    with pytest.raises(pawlock.ConfigurationError, match="condition"):
        await sessions.claim(Stock, 1)
    with pytest.raises(pawlock.ConfigurationError, match="fence"):
        await sessions.write(Stock, 1, Stock.product == "tea", fence=7)


async def test_a_row_without_a_fence_counts_as_fence_0(sessions: Sessions) -> None:
    sessions.session.add(Loose(number=1, left=10, fence=None))
    sessions.session.flush()
    assert await sessions.write(Loose, 5, Loose.number == 1, left=9)
    with pytest.raises(pawlock.StaleFence, match="5"):
        await sessions.write(Loose, 4, Loose.number == 1, left=0)


async def test_a_subclass_writes_its_own_rows_alone(sessions: Sessions) -> None:
    session = sessions.session
    people = [Person(number=1, name="ada", fence=5), Writer(number=2, name="ada", fence=5)]
    session.add_all(
        [*people, Writer(number=3, name="bob", fence=50), Robot(number=1, kind="robot", name="ada", fence=5)]
    )
    session.flush()

    def stored(table: str) -> list[tuple[Any, ...]]:
        return [tuple(one) for one in session.execute(text(f"SELECT number, name, fence FROM {table}"))]

    assert await sessions.write(Writer, 20, Writer.name == "ada", name="ADA")
    assert sorted(stored("orm_person")) == [(1, "ada", 5), (2, "ADA", 20), (3, "bob", 50)]
    with pytest.raises(pawlock.StaleFence, match="50"):
        await sessions.write(Writer, 20, Writer.number == 3, skill="late")
    assert await sessions.write(Robot, 20, Robot.number == 1, name="ROB")
    assert stored("orm_robot") == [(1, "ROB", 20)]
    assert sorted(stored("orm_person")) == [(1, "ada", 5), (2, "ADA", 20), (3, "bob", 50)]
    # Of the class above, all its rows: those of its subclasses in the same table, too.
    with pytest.raises(pawlock.StaleFence, match="50"):
        await sessions.write(Person, 20, Person.number > 0, name="late")


async def test_nobody_comes_between_the_look_and_the_write(sessions: Sessions, database: Any) -> None:
    """Before each statement of a write, another connection tries to take one of its rows over."""
    dialect, connection = database
    other = databases.impatient(dialect, connection)
    bind = sessions.session.get_bind()
    seen = 0
    for number in range(1, 6):
        taken: list[bool] = []
        seen = 0

        def intrude(*_: object, number: int = number, taken: list[bool] = taken) -> None:
            nonlocal seen
            seen += 1
            if seen == number:
                taken.append(databases.tried(other, "UPDATE orm_stock SET fence = 900 WHERE product = 'rye'"))

        sqlalchemy.event.listen(bind, "before_cursor_execute", intrude)
        try:
            written = await sessions.write(Stock, 500, Stock.left > 0, left=Stock.left + 1)
        except pawlock.StaleFence:
            written = False
        finally:
            sqlalchemy.event.remove(bind, "before_cursor_execute", intrude)
        rows = sessions.session.execute(select(Stock.product, Stock.left))
        stored = {product: left for product, left in rows}  # noqa: C416 - rows are typed as tuples here alone
        assert stored == ({"tea": 11, "rye": 6} if written else {"tea": 10, "rye": 5}), f"statement {number}"
        assert written is (True not in taken), f"statement {number}"
        sessions.session.rollback()
        databases.tried(other, "UPDATE orm_stock SET fence = 0")
    other.close()
    assert seen >= 2


def joined_from_a_fenced_base() -> None:
    class Dog(Person):
        __tablename__ = "orm_dog"
        number: Mapped[int] = mapped_column(ForeignKey("orm_person.number"), primary_key=True)
        __mapper_args__ = {"polymorphic_identity": "dog"}  # noqa: RUF012 - SQLAlchemy's way


def joined_with_a_fence_of_its_own() -> None:
    class Own(DeclarativeBase):
        pass

    class Animal(Own):
        __tablename__ = "animal"
        number: Mapped[int] = mapped_column(primary_key=True)

    class Cat(FencedMixin, Animal):
        __tablename__ = "cat"
        number: Mapped[int] = mapped_column(ForeignKey("animal.number"), primary_key=True)


def concrete_without_a_fence() -> None:
    class Bird(Person):
        __tablename__ = "orm_bird"
        number: Mapped[int] = mapped_column(primary_key=True)
        __mapper_args__ = {"polymorphic_identity": "bird", "concrete": True}  # noqa: RUF012 - SQLAlchemy's way


@pytest.mark.parametrize(
    "define", [joined_from_a_fenced_base, joined_with_a_fence_of_its_own, concrete_without_a_fence]
)
def test_a_class_whose_fence_is_not_beside_its_row_is_refused(define: Any) -> None:
    with pytest.raises(pawlock.ConfigurationError, match=r"the fence column must be in the same table"):
        define()


@pytest.mark.parametrize("dialect", [postgresql.dialect(), mysql.dialect()], ids=["postgresql", "mysql"])
def test_the_statement_compares_in_every_dialect(dialect: Dialect) -> None:
    statement = str(Stock.fenced_update(7).where(Stock.product == "tea").compile(dialect=dialect))
    assert "WHERE coalesce(orm_stock.fence, " in statement
    assert "SET fence=" in statement


# The only one of these databases whose driver has asyncio.
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
async def test_a_session_of_asyncio(engine: sqlalchemy.Engine, database: Any) -> None:
    _, connection = database
    url = f"postgresql+psycopg://pawlock@/postgres?host={connection.info.host}"
    with Session(engine) as session:
        session.execute(Stock.__table__.delete())  # type: ignore[attr-defined]
        session.commit()
    made = create_async_engine(url)
    async with AsyncSession(made, expire_on_commit=False) as session_:
        session_.add(Stock(product="tea", left=10))
        await session_.commit()
        tea = await session_.get_one(Stock, "tea")
        assert await Stock.claim_async(session_, 100, Stock.product == "tea")
        assert await Stock.write_async(session_, 100, Stock.product == "tea", left=Stock.left - 1)
        assert (tea.left, tea.fence) == (9, 100)
        with pytest.raises(pawlock.StaleFence):
            await Stock.write_async(session_, 99, Stock.product == "tea", left=tea.left - 1)
        await session_.commit()
    async with made.begin() as plain:
        assert await Stock.write_async(plain, 101, Stock.product == "tea", left=8)
    await made.dispose()


def test_a_connection_writes_as_a_session_does(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(Stock.__table__.delete())  # type: ignore[attr-defined]
        connection.execute(Stock.__table__.insert().values(product="tea", place="here", left=10))  # type: ignore[attr-defined]
        assert Stock.claim(connection, 100, Stock.product == "tea")
        assert Stock.write(connection, 100, Stock.product == "tea", left=9)
        with pytest.raises(pawlock.StaleFence):
            Stock.write(connection, 99, Stock.product == "tea", left=8)


def test_without_sqlalchemy_one_line_says_what_to_install() -> None:
    program = """
import sys
sys.modules["sqlalchemy"] = None
import pawlock.fencing
assert pawlock.fencing.FencedTable
try:
    pawlock.fencing.FencedMixin
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "pawlock.fencing.FencedMixin needs SQLAlchemy 2: pip install 'sqlalchemy>=2.0.2'\n"


def test_the_package_loads_neither_sqlalchemy_nor_redis() -> None:
    program = (
        "import sys, pawlock.fencing; print(sorted({'sqlalchemy', 'redis', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
