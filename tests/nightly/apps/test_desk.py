"""A help desk with Django under gunicorn and uvicorn, sync and async views, and a management command."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.nightly.apps.rig import Rig, ask, listening, rig, until
from tests.support.servers import Server

for package in ("django", "gunicorn", "uvicorn"):
    pytest.importorskip(package)

SCHEMA = (
    "import django; django.setup()\n"
    "from django.db import connection\n"
    "from tests.nightly.apps.desk.models import Import, Ticket\n"
    "with connection.schema_editor() as editor: [editor.create_model(model) for model in (Ticket, Import)]\n"
    "Ticket.objects.create(number=7)\n"
)
SERVERS = {
    "gunicorn": (
        "gunicorn",
        "tests.nightly.apps.desk.wsgi",
        "--workers",
        "2",
        "--threads",
        "4",
        "--bind",
        "fd://{fd}",
    ),
    "uvicorn": ("uvicorn", "tests.nightly.apps.desk.asgi:application", "--workers", "2", "--fd", "{fd}"),
}


@pytest.fixture
def desk(valkey: Server, tmp_path: Path) -> Iterator[Rig]:
    valkey.command("FLUSHALL")
    environ = {
        "PAWLOCK_URL": valkey.url,
        "DESK_DATABASE": str(tmp_path / "desk.db"),
        "DJANGO_SETTINGS_MODULE": "tests.nightly.apps.desk.settings",
    }
    with rig(tmp_path, environ) as found:
        made = found.run("python", "-c", SCHEMA)
        assert made.returncode == 0, made.stderr
        yield found


def rows(desk: Rig, query: str) -> list[Any]:
    with sqlite3.connect(desk.folder / "desk.db", timeout=30) as database:
        found = database.execute(query).fetchall()
    database.close()
    return found


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("view", ["reply", "areply"])
def test_no_reply_is_lost_in_any_view_under_any_server(
    server: str, view: str, desk: Rig, valkey: Server
) -> None:
    with listening() as gate:
        port = gate.getsockname()[1]
        command = [part.format(fd=gate.fileno()) for part in SERVERS[server]]
        web = desk.start(*command, fds=[gate.fileno()])
        with ThreadPoolExecutor(6) as agents:
            answers = list(agents.map(lambda _: ask(port, "POST", f"/tickets/7/{view}"), range(24)))
        assert [answer.status for answer in answers] == [200] * 24, desk.log()
        assert rows(desk, "SELECT replies FROM desk_ticket") == [(24,)]
        tokens = [answer.body["token"] for answer in answers]
        assert rows(desk, "SELECT token FROM desk_ticket") == [(max(tokens),)]
        assert len(set(tokens)) == 24
        # One agent thinks for long: the other's request ends in time and says so.
        with ThreadPoolExecutor(1) as agent:
            slow = agent.submit(ask, port, "POST", f"/tickets/7/{view}?slow=3")
            until("the ticket is held", lambda: valkey.command("EXISTS", "desk:ticket:7"))
            refused = ask(port, "POST", f"/tickets/7/{view}?timeout=0.1")
            assert (refused.status, refused.body["code"]) == (423, "LOCK_TIMEOUT")
            assert slow.result().status == 200
        # Stopped in the middle of a request: the lock goes with the process, not when its TTL is over.
        with ThreadPoolExecutor(1) as agent:
            cut = agent.submit(ask, port, "POST", f"/tickets/7/{view}?slow=2")
            until("the ticket is held", lambda: valkey.command("EXISTS", "desk:ticket:7"))
            web.send_signal(signal.SIGTERM)
            web.wait(60)
            assert cut.exception() or cut.result().status in (200, 500)
    until("the name is free", lambda: not valkey.command("EXISTS", "desk:ticket:7"), patience=15)


def test_an_import_that_cron_starts_everywhere_is_done_once(desk: Rig) -> None:
    with ThreadPoolExecutor(3) as machines:
        done = list(machines.map(lambda _: desk.run("python", "-m", "django", "load", "prices"), range(3)))
    assert [one.returncode for one in done] == [0, 0, 0], done
    said = sorted(one.stdout.strip() for one in done)
    assert said == ["another machine does it", "another machine does it", "loaded"]
    assert len(rows(desk, "SELECT source FROM desk_import")) == 1
