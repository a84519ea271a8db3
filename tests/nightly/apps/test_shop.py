"""A shop with FastAPI, SQLAlchemy, Celery, APScheduler and Alembic, driven end to end with its real servers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.nightly.apps.rig import Rig, ask, listening, rig, until
from tests.support.servers import Server

for package in ("alembic", "apscheduler", "celery", "fastapi", "uvicorn"):
    pytest.importorskip(package)

SHOP = Path("tests/nightly/apps/shop")


@pytest.fixture
def shop(valkey: Server, tmp_path: Path) -> Iterator[Rig]:
    valkey.command("FLUSHALL")
    (tmp_path / "alembic.ini").write_text(f"[alembic]\nscript_location = {SHOP}/migrations\n")
    environ = {
        "PAWLOCK_URL": valkey.url,
        "SHOP_DATABASE": f"sqlite:///{tmp_path}/shop.db",
        "SHOP_BROKER": valkey.url.replace("unix://", "redis+socket://"),
    }
    with rig(tmp_path, environ) as found:
        yield found


def rows(shop: Rig, query: str) -> list[Any]:
    with sqlite3.connect(shop.folder / "shop.db", timeout=30) as database:
        found = database.execute(query).fetchall()
    database.close()
    return found


def migrate(shop: Rig) -> subprocess.CompletedProcess[str]:
    done = shop.run("alembic", "-c", str(shop.folder / "alembic.ini"), "upgrade", "head")
    assert done.returncode == 0, done.stderr
    return done


def held(valkey: Server) -> list[bytes]:
    """The names of the shop that are held now: keys without the marks of what was."""
    keys = valkey.command("KEYS", "shop:*")
    assert isinstance(keys, list)
    return [key for key in keys if isinstance(key, bytes) and b"{" not in key]


def test_hosts_that_start_at_once_migrate_once(shop: Rig) -> None:
    with ThreadPoolExecutor(3) as hosts:
        done = list(hosts.map(lambda _: migrate(shop), range(3)))
    assert sum(one.stdout.count("migrated") for one in done) == 1
    assert rows(shop, "SELECT product, left FROM stock") == [("socks", 25)]
    assert "migrated" not in migrate(shop).stdout


def test_workers_sell_what_is_there_and_the_job_runs_in_one_of_them(shop: Rig, valkey: Server) -> None:
    migrate(shop)
    with listening() as gate:
        port = gate.getsockname()[1]
        command = ("tests.nightly.apps.shop.api:app", "--fd", str(gate.fileno()), "--workers", "2")
        web = shop.start("uvicorn", *command, fds=[gate.fileno()])
        with ThreadPoolExecutor(8) as customers:
            answers = list(customers.map(lambda _: ask(port, "POST", "/orders/socks"), range(40)))
        statuses = [answer.status for answer in answers]
        assert (statuses.count(201), statuses.count(409)) == (25, 15), shop.log()
        sold = [answer.body for answer in answers if answer.status == 201]
        tokens = rows(shop, "SELECT token FROM orders ORDER BY id")
        assert len({token for (token,) in tokens}) == 25
        assert tokens == sorted(tokens), "a later sale has the larger fencing token"
        assert sorted(one["left"] for one in sold) == list(range(25))
        until("the report is written", lambda: rows(shop, "SELECT day FROM reports"))
        # An order that takes long: the export of the same product is refused in time, by the name of the error.
        with ThreadPoolExecutor(1) as customer:
            slow = customer.submit(ask, port, "POST", "/orders/socks?slow=3")
            until("the order holds its product", lambda: b"shop:stock:socks" in held(valkey))
            refused = ask(port, "POST", "/exports/socks")
            assert (refused.status, refused.body["code"]) == (423, "LOCK_TIMEOUT")
            assert refused.headers["Retry-After"] == "1"
            assert ask(port, "POST", "/exports/socks?timeout=50").status == 200
            assert slow.result().status == 409
        web.send_signal(signal.SIGTERM)
        assert web.wait(60) in (0, -signal.SIGTERM), shop.log()
    assert rows(shop, "SELECT day FROM reports") == [("monday",)], (
        "each worker has a scheduler; one runs the job"
    )
    assert held(valkey) in ([], [b"shop:report:monday"]), "only what min_hold keeps closed"


def test_an_order_whose_worker_is_killed_delays_the_next_by_no_more_than_its_ttl(
    shop: Rig, valkey: Server
) -> None:
    shop.environ["PAWLOCK_TTL"] = "2"
    migrate(shop)
    with listening() as gate:
        port = gate.getsockname()[1]
        command = ("tests.nightly.apps.shop.api:app", "--fd", str(gate.fileno()), "--workers", "2")
        shop.start("uvicorn", *command, fds=[gate.fileno()])
        first = ask(port, "POST", "/orders/socks").body
        with ThreadPoolExecutor(1) as customer:
            lost = customer.submit(ask, port, "POST", "/orders/socks?slow=1000")
            token = until("the slow order holds", lambda: valkey.command("GET", "shop:stock:socks"))
            assert isinstance(token, bytes)
            os.kill(int(token.decode().rpartition(":")[2].partition("/")[0]), signal.SIGKILL)
            with pytest.raises((ConnectionError, OSError)):
                lost.result()
        # Its lease ends by itself: nobody has to clean up, and the customer waits in the queue for it.
        after = until("an order goes through", lambda: ordered(port))
        assert after is not None
        assert after["left"] == first["left"] - 1
        assert after["token"] > first["token"]


def ordered(port: int) -> dict[str, int] | None:
    try:
        found = ask(port, "POST", "/orders/socks")
    except OSError:
        return None  # it reached the worker that was killed
    assert found.status == 201, found
    body: dict[str, int] = found.body
    return body


def test_a_task_that_is_delivered_twice_runs_once(shop: Rig, valkey: Server) -> None:
    migrate(shop)
    worker = shop.start(
        "celery", "-A", "tests.nightly.apps.shop.tasks", "worker", "-c", "2", "-P", "prefork", "-l", "INFO"
    )
    until("the worker is up", lambda: " ready." in shop.log())
    deliver = "from tests.nightly.apps.shop.tasks import send; r=[send.delay('monday') for _ in range(4)];"
    deliver += "print(sorted(map(str, [one.get(timeout=50) for one in r])))"
    done = shop.run("python", "-c", deliver)
    assert done.returncode == 0, done.stderr + shop.log()
    assert done.stdout.count("None") == 3
    assert len(rows(shop, "SELECT day FROM reports")) == 1
    # The pool's processes were forked from one that had made the client; stopped, they leave only what min_hold keeps.
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, shop.log()
    assert held(valkey) == [b"shop:send:monday"]


def test_the_shop_answers_503_while_its_lock_server_is_away(shop: Rig, tmp_path: Path) -> None:
    with Server("valkey") as server:
        shop.environ["PAWLOCK_URL"] = server.url
        migrate(shop)
        with listening() as gate:
            port = gate.getsockname()[1]
            command = ("tests.nightly.apps.shop.api:app", "--fd", str(gate.fileno()))
            shop.start("uvicorn", *command, fds=[gate.fileno()])
            assert ask(port, "POST", "/orders/socks").status == 201
            server.kill()
            refused = ask(port, "POST", "/orders/socks")
            assert (refused.status, refused.body["code"]) == (503, "REDIS_CONNECTION_ERROR")
            server.start()
            again = until("it sells again", lambda: ask(port, "POST", "/orders/socks").status == 201)
            assert again
