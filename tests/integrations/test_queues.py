"""The page of the task queues: each program runs under two workers of the framework itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.docs.test_docs import blocks
from tests.nightly.apps.rig import ROOT, Rig, rig, until
from tests.support.servers import Server

TIMES = 6
ENQUEUE = "import app\nfor _ in range({charges}): app.charge.{send}(7)\nfor _ in range({times}): app.book.{send}(7)\n"
OF_TASKS = """
import asyncio, app
{more}
async def main():
    {opened}
    for _ in range({charges}): await {charge}
    for _ in range({times}): await {book}
    {closed}
asyncio.run(main())
"""
ARQ = """
from arq import create_pool
from arq.connections import RedisSettings
import app, os
class Settings:
    functions = app.WorkerSettings.functions
    redis_settings = RedisSettings.from_dsn(os.environ["PAWLOCK_URL"])
"""


def enqueue(name: str, charges: int = 3, books: int = TIMES) -> str:
    counts = {"charges": charges, "times": books}
    if name == "rq":
        program = "import os, redis, rq\nqueue = rq.Queue(connection=redis.Redis.from_url(os.environ['PAWLOCK_URL']))\n"
        return program + (
            f"for _ in range({charges}): queue.enqueue('app.charge', 7)\n"
            f"for _ in range({books}): queue.enqueue('app.book', 7)\n"
        )
    if name == "taskiq":
        calls = {"book": "app.book.kiq(7)", "charge": "app.charge.kiq(7)", "more": ""}
        opened, closed = "await app.broker.startup()", "await app.broker.shutdown()"
        return OF_TASKS.format(**counts, opened=opened, closed=closed, **calls)
    if name == "arq":
        calls = {"book": "pool.enqueue_job('book', 7)", "charge": "pool.enqueue_job('charge', 7)"}
        opened, closed = "pool = await create_pool(Settings.redis_settings)", "await pool.aclose()"
        return OF_TASKS.format(**counts, opened=opened, closed=closed, more="from settings import *", **calls)
    return ENQUEUE.format(**counts, send="send" if name == "dramatiq" else "__call__")


WORKERS: dict[str, Sequence[str]] = {
    "dramatiq": ("-m", "dramatiq", "app", "--processes", "1", "--threads", "4"),
    "rq": ("-m", "rq.cli", "worker", "--url", "{url}"),
    "huey": ("-m", "huey.bin.huey_consumer", "app.huey", "-w", "2", "-k", "process"),
    "taskiq": ("-m", "taskiq", "worker", "app:broker", "--workers", "1"),
    "arq": ("-m", "arq", "settings.Settings"),
}


TITLES = {"dramatiq": "Dramatiq", "rq": "RQ", "huey": "Huey"}
"""How the sections are called that are not called as the package."""


def section(name: str) -> dict[str, str]:
    """The program of one queue on the page, and its command, by their languages."""
    page = (ROOT / "docs/integrations/task-queues.md").read_text(encoding="utf-8")
    found = page.partition(f"\n## {TITLES.get(name, name)}\n")[2].partition("\n## ")[0]
    return {block.language: block.code.lstrip("\n") for block in blocks(found)}


def prepared(here: Rig, folder: Path, name: str) -> None:
    """The program of the section as a module, where it can be imported, and the packages that pawlock's tests lack."""
    code, body = section(name)["python"], "    ...  # read"
    assert code.count(body) == 1
    pause = (
        "await __import__('asyncio').sleep(0.1)" if "async def" in code else "__import__('time').sleep(0.1)"
    )
    (folder / "app.py").write_text(code.replace(body, f"    {pause}  # read"))
    path = [str(folder), here.environ["PYTHONPATH"]]
    if name == "arq":
        # It cannot be installed beside the redis-py that pawlock is developed with.
        packages = folder / "packages"
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(packages), "arq"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("arq could not be installed")
        (folder / "settings.py").write_text(ARQ)
        path.append(str(packages))
    here.environ["PYTHONPATH"] = os.pathsep.join(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKERS)
def test_two_workers_book_one_after_the_other_and_charge_once(
    name: str, valkey: Server, tmp_path: Path
) -> None:
    valkey.command("FLUSHALL")
    with rig(tmp_path, {"PAWLOCK_URL": valkey.url}) as here:
        prepared(here, tmp_path, name)
        done = here.run("python", "-c", enqueue(name))
        assert done.returncode == 0, done.stderr
        for _ in range(2):
            here.start("python", *(word.format(url=valkey.url) for word in WORKERS[name]))

        def ended() -> bool:
            log = here.log()
            return len(re.findall("booked 7", log)) >= TIMES and "charged 7" in log

        until("all is booked", ended)
        log = here.log()
    said = re.findall(r"(booking|booked) 7 with fencing token (\d+)", log)
    fences = [fence for what, fence in said if what == "booking"]
    assert said == [(what, fence) for fence in fences for what in ("booking", "booked")], said
    assert len(fences) == len(set(fences)) == TIMES
    assert log.count("charged 7") == 1


HANG = """
def hang(what):
    import os, pathlib, time
    mark = pathlib.Path(__file__).with_name(what)
    if not mark.exists():
        mark.touch()
        print(what, "hangs in", os.getpid(), flush=True)
        time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKERS)
def test_what_a_killed_worker_ran_can_be_run_again(name: str, valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    with rig(tmp_path, {"PAWLOCK_URL": valkey.url}) as here:
        prepared(here, tmp_path, name)
        app = tmp_path / "app.py"
        code = re.sub(r"(pawlock\.connect\w*)\(\)", r"\1(ttl=2)", app.read_text())
        for what, ended in (("book", "booked"), ("charge", "charged")):
            code = re.sub(
                rf'^    (print\(f"{ended})', rf'    hang("{what}")\n    \1', code, flags=re.MULTILINE
            )
        app.write_text(code + HANG)

        def send_and_work(what: str) -> None:
            counts = {"charges": int(what == "charge"), "books": int(what == "book")}
            done = here.run("python", "-c", enqueue(name, **counts))
            assert done.returncode == 0, done.stderr
            here.start("python", *(word.format(url=valkey.url) for word in WORKERS[name]))

        def found(words: str) -> list[str]:
            return re.findall(words, here.log())

        for what, ended in (("book", "booked"), ("charge", "charged")):
            send_and_work(what)
            said = until("it hangs", partial(found, rf"{what} hangs in (\d+)"))
            os.kill(int(said[-1]), signal.SIGKILL)
            send_and_work(what)
            until("it was run again", partial(found, f"{ended} 7"))


def test_each_queue_has_its_command() -> None:
    for name, words in WORKERS.items():
        command = section(name)["sh"].split()
        assert command[0].removesuffix("_consumer.py") == name
        wanted = [word for word in words[1:] if word in ("worker", "app", "app.huey", "app:broker")]
        assert [word for word in command if word in wanted] == wanted
