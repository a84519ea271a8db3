"""Real databases for the guards: each lives in a folder of its own, listens on a unix socket only, and ends with it."""

from __future__ import annotations

import os
import shutil
import socket as sockets
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

NOBODY = "nobody"
PATIENCE = 30.0


def _program(name: str, *folders: str) -> str | None:
    # On a bare machine there is nothing beside PATH (see `tests/support/plugins/bare.py`).
    places = () if "PAWLOCK_BARE" in os.environ else folders
    found = [shutil.which(name), *(str(path) for folder in places for path in Path("/").glob(folder))]
    return next((path for path in found if path and os.access(path, os.X_OK)), None)


PROGRAMS: dict[str, list[tuple[str, ...]]] = {
    "postgresql": [
        ("initdb", "usr/lib/postgresql/*/bin/initdb"), ("postgres", "usr/lib/postgresql/*/bin/postgres")
    ],
    "mysql": [("mariadb-install-db",), ("mariadbd", "usr/sbin/mariadbd")],
}  # fmt: skip
NAMES = {"postgresql": "PostgreSQL", "mysql": "MariaDB"}


def programs(dialect: str) -> list[str]:
    """The programs of a database; fewer where it is not installed."""
    return [path for words in PROGRAMS[dialect] if (path := _program(*words))]


def missing() -> dict[str, str]:
    """The dialects without a database on this machine, and why."""
    return {one: f"no {NAMES[one]} on this machine" for one in PROGRAMS if len(programs(one)) < 2}


def _want(dialect: str) -> None:
    if reason := missing().get(dialect):
        pytest.skip(reason)


def _given_up(folder: Path) -> dict[str, Any]:
    # Neither server runs as root.
    if os.geteuid() != 0:
        return {}
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == 0 and parent != Path("/") and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    shutil.chown(folder, NOBODY)
    return {"user": NOBODY}


def _done(command: list[str], folder: Path, user: dict[str, Any]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, **user)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stdout[-2000:]} {done.stderr[-2000:]}")


@contextmanager
def _running(command: list[str], folder: Path, connect: Callable[[], Any], **user: Any) -> Iterator[Any]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **user)
    try:
        connection = _first(connect, process, folder / "log")
        try:
            yield connection
        finally:
            connection.close()
    finally:
        process.kill()
        process.wait()


def _first(connect: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> Any:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return connect()
        except Exception as error:
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"it did not start: {log.read_text(errors='replace')[-2000:]}") from error
            time.sleep(0.1)


@contextmanager
def postgresql(folder: Path) -> Iterator[Any]:
    """A connection to a PostgreSQL of its own."""
    import psycopg

    _want("postgresql")
    initdb, server = programs("postgresql")
    user = _given_up(folder)
    data = str(folder / "data")
    made = [initdb, "-D", data, "-U", "pawlock", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8"]
    _done(made, folder, user)
    command = [server, "-D", data, "-k", str(folder), "-c", "listen_addresses=", "-F"]
    with _running(
        command, folder, lambda: psycopg.connect(host=str(folder), user="pawlock", dbname="postgres"), **user
    ) as connection:
        yield connection


@contextmanager
def mysql(folder: Path) -> Iterator[Any]:
    """A connection to a MariaDB of its own."""
    import pymysql

    _want("mysql")
    install, server = programs("mysql")
    user = _given_up(folder)
    common = [f"--datadir={folder}/data", "--skip-log-bin", "--innodb-buffer-pool-size=8M"]
    common.append("--innodb-flush-log-at-trx-commit=0")
    user["env"] = {**os.environ, "TMPDIR": str(folder)}
    made = [install, "--no-defaults", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    _done(made, folder, user)
    socket = f"{folder}/socket"
    command = [server, "--no-defaults", *common, f"--socket={socket}", f"--tmpdir={folder}"]
    command += ["--skip-networking", f"--pid-file={folder}/pid"]

    def connect() -> Any:
        # The driver leaves a socket open that it could not connect.
        with closing(sockets.socket(sockets.AF_UNIX)) as probe:
            probe.connect(socket)
        return pymysql.connect(unix_socket=socket, user="root")

    with _running(command, folder, connect, **user) as connection:
        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE pawlock")
            cursor.execute("USE pawlock")
        yield connection


def again(dialect: str, connection: Any) -> Any:
    """Another connection to the database of that one."""
    if dialect == "sqlite":
        (path,) = (row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main")
        made = sqlite3.connect(path, timeout=0, isolation_level=None)
        made.execute("PRAGMA synchronous = OFF")
        made.execute("PRAGMA journal_mode = MEMORY")
        return made
    if dialect == "postgresql":
        import psycopg

        return psycopg.connect(host=connection.info.host, user="pawlock", dbname="postgres")
    import pymysql

    return pymysql.connect(unix_socket=connection.unix_socket, user="root", database="pawlock")


def engine(dialect: str, connection: Any) -> Any:
    """An engine of SQLAlchemy for the database of that connection."""
    import sqlalchemy

    urls = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://", "mysql": "mysql+pymysql://"}
    if dialect != "sqlite":
        return sqlalchemy.create_engine(urls[dialect], creator=lambda: again(dialect, connection))
    (path,) = (row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main")
    return sqlalchemy.create_engine(f"sqlite:///{path}")


def impatient(dialect: str, connection: Any) -> Any:
    """Another connection, without transactions, that gives up at once where a row is locked."""
    made = again(dialect, connection)
    if dialect != "sqlite":
        if dialect == "postgresql":
            made.autocommit = True
        else:
            made.autocommit(True)
        words = {"postgresql": "SET lock_timeout = '20ms'", "mysql": "SET innodb_lock_wait_timeout = 0"}
        made.cursor().execute(words[dialect])
    return made


def tried(connection: Any, statement: str, values: Any = ()) -> bool:
    """Whether a statement was run; False where it would have waited for a lock."""
    import psycopg.errors
    import pymysql

    try:
        connection.cursor().execute(statement, values)
    except (sqlite3.OperationalError, psycopg.errors.LockNotAvailable, pymysql.OperationalError):
        return False
    return True
