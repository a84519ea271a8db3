"""``pawlock.integrations.alembic``: the env.py of the documentation, run by hosts that start at once."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config

import pawlock
from pawlock.integrations.alembic import migration_lock
from tests.contract.fencing.databases import postgresql
from tests.docs.test_docs import runnable
from tests.nightly.apps.rig import ROOT, Rig, rig
from tests.support.servers import Server

(ENV,) = [block for block in runnable(ROOT / "docs/integrations/index.md") if "migration_lock" in block.code]

FIRST = """
import time
import sqlalchemy as sa
from alembic import op
revision, down_revision = "0001", None


def upgrade():
    op.create_table("applied", sa.Column("revision", sa.String(8)))
    op.execute("INSERT INTO applied VALUES ('0001')")
    time.sleep(0.5)  # long enough for the other hosts to come


def downgrade():
    op.drop_table("applied")
"""
SECOND = """
import os
from alembic import op
revision, down_revision = "0002", "0001"


def upgrade():
    op.execute("INSERT INTO applied VALUES ('0002')")
    exec(os.environ.get("MEANWHILE", ""))


def downgrade():
    op.execute("DELETE FROM applied WHERE revision = '0002'")
"""


def environment(folder: Path, url: str, env: str = ENV.code) -> str:
    """A folder of migrations with two of them, whose env.py is the documentation's; its configuration file."""
    versions = folder / "migrations" / "versions"
    versions.mkdir(parents=True)
    (versions / "0001_first.py").write_text(FIRST)
    (versions / "0002_second.py").write_text(SECOND)
    (folder / "migrations" / "env.py").write_text(f"{env}\nrun_migrations_online()\n")
    ini = folder / "alembic.ini"
    ini.write_text(f"[alembic]\nscript_location = {folder}/migrations\nsqlalchemy.url = {url}\n")
    return str(ini)


@pytest.fixture
def hosts(valkey: Server, tmp_path: Path) -> Iterator[Rig]:
    valkey.command("FLUSHALL")
    with rig(tmp_path, {"PAWLOCK_URL": valkey.url}) as found:
        yield found


def rows(folder: Path) -> list[Any]:
    with sqlite3.connect(folder / "shop.db") as database:
        found = database.execute("SELECT revision FROM applied ORDER BY 1").fetchall()
    database.close()
    return found


def upgrade(hosts: Rig, ini: str, count: int) -> list[str]:
    """What the hosts said."""
    with ThreadPoolExecutor(count) as at_once:
        done = list(at_once.map(lambda _: hosts.run("alembic", "-c", ini, "upgrade", "head"), range(count)))
    assert [one.returncode for one in done] == [0] * count, [one.stderr for one in done]
    return [one.stderr for one in done]


@pytest.mark.slow
def test_hosts_that_start_at_once_migrate_once(hosts: Rig, valkey: Server) -> None:
    ini = environment(hosts.folder, f"sqlite:///{hosts.folder}/shop.db")
    upgrade(hosts, ini, 2)
    assert rows(hosts.folder) == [("0001",), ("0002",)]
    assert not valkey.command("EXISTS", "pawlock:alembic:shop.db")


@pytest.mark.slow
def test_hosts_migrate_once_on_postgresql(hosts: Rig) -> None:
    with tempfile.TemporaryDirectory(prefix="pawlock-t-") as folder, postgresql(Path(folder)) as database:
        ini = environment(hosts.folder, f"postgresql+psycopg://pawlock@/postgres?host={folder}")
        upgrade(hosts, ini, 4)
        found = database.execute("SELECT revision FROM applied ORDER BY 1").fetchall()
        assert found == [("0001",), ("0002",)]
        database.rollback()


@contextmanager
def configured(folder: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Iterator[Config]:
    ini = environment(folder, f"sqlite:///{folder}/shop.db")
    monkeypatch.setenv("PAWLOCK_URL", url)
    yield Config(ini)


def test_with_nothing_to_do_a_host_asks_no_server(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAWLOCK_TIMEOUT", "2")
    with configured(tmp_path, monkeypatch, own_server.url) as config:
        command.upgrade(config, "head")
        with pawlock.connect(own_server.url) as client, client.lock("alembic:shop.db"):
            command.upgrade(config, "head")
            command.current(config)
            command.upgrade(config, "head", sql=True)
        own_server.kill()
        command.upgrade(config, "head")
        command.current(config)
        with pytest.raises(pawlock.BackendUnavailable):
            command.downgrade(config, "base")
        assert rows(tmp_path) == [("0001",), ("0002",)]
        own_server.start()
        command.downgrade(config, "0001")
        assert rows(tmp_path) == [("0001",)]
        command.stamp(config, "head")
        command.upgrade(config, "head")
        assert rows(tmp_path) == [("0001",)], "stamped: nothing to do"


def test_a_host_waits_for_its_timeout(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAWLOCK_TIMEOUT", "0.1")
    with configured(tmp_path, monkeypatch, server.url) as config, pawlock.connect(server.url) as client:
        with client.lock("alembic:shop.db"), pytest.raises(pawlock.AcquireTimeout):
            command.upgrade(config, "head")
        command.upgrade(config, "head")


def test_a_lease_that_is_lost_rolls_the_migration_back(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite as SQLAlchemy drives it commits before DDL; the second migration has none."""
    monkeypatch.setenv("PAWLOCK_TTL", "0.3")
    with configured(tmp_path, monkeypatch, server.url) as config, pawlock.connect(server.url) as client:
        command.upgrade(config, "0001")
        meanwhile = (
            "import pawlock, os, time\n"
            "with pawlock.connect() as client: client.force_release('alembic:shop.db', reason='a test')\n"
            "time.sleep(1)"
        )
        monkeypatch.setenv("MEANWHILE", meanwhile)
        with pytest.raises(pawlock.LeaseLost):
            command.upgrade(config, "head")
        assert rows(tmp_path) == [("0001",)]
        monkeypatch.setenv("MEANWHILE", "")
        command.upgrade(config, "head")
        assert rows(tmp_path) == [("0001",), ("0002",)]
        assert not client.lock("alembic:shop.db").locked()


def test_what_can_never_work_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAWLOCK_URL", server.url)
    with pytest.raises(pawlock.ConfigurationError, match="configure"), migration_lock(server.url):
        pass
    env = ENV.code.replace("migration_lock()", "migration_lock(__import__('pawlock').connect_async())")
    with pytest.raises(pawlock.ConfigurationError, match=r"pawlock\.connect\(\)"):
        command.upgrade(Config(environment(tmp_path, f"sqlite:///{tmp_path}/shop.db", env)), "head")
