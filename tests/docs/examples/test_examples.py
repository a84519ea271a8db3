"""Each program in examples/ runs as a user would run it, and says what it should; the page shows them all."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[3]
SAYS = {
    "migration": r"1 of 3 hosts migrated",
    "inventory": r"refused: .*and \d+ is stale.*\nlate False, sold 11 of 11, left 0",
    "daily_job": r"the job ran 1 time on scheduler a",
    "payment": r"statuses \[200, 200, 200, 200, 201\], 1 receipt, charged \[995\], another amount 422",
    "leader": r"3 rounds, fences rise: True",
    "resource_pool": r"20 answers, at most 3 at once",
    "celery_once": r"ran 1 time, 1 skipped, report of tuesday",
}


@pytest.fixture
def run(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path], str]:
    """Runs a program as its own main module, in this process; what it printed."""
    valkey.command("FLUSHALL")
    monkeypatch.setenv("PAWLOCK_URL", valkey.url)

    def program(path: Path) -> str:
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out.strip()

    return program


@pytest.mark.parametrize("name", sorted(SAYS.keys() - {"migration"}))
def test_an_example_does_what_it_says(name: str, run: Callable[[Path], str]) -> None:
    assert re.fullmatch(SAYS[name], run(ROOT / "examples" / f"{name}.py"))


def test_an_example_that_starts_processes_does_what_it_says(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-W", "error::ResourceWarning", str(ROOT / "examples" / "migration.py")]
    done = subprocess.run(
        command, env={**os.environ, "PAWLOCK_URL": valkey.url, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(SAYS["migration"], done.stdout.strip()), done.stdout


# What each would do without the lock: a program that goes wrong only with it taken out shows that it is needed.
BROKEN = {
    "daily_job": (", min_hold=300", ""),
    "payment": ('f"payment:{key}", timeout=5', 'f"payment:{uuid.uuid4()}"'),
    "resource_pool": ('"slow-service"', 'f"service-{id(client)}"'),
    "inventory": ("STOCK.update(database.cursor(), lease,", "STOCK.update(database.cursor(), 2**62,"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_without_its_lock_or_fence_an_example_says_otherwise(
    name: str, run: Callable[[Path], str], tmp_path: Path
) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    old, new = BROKEN[name]
    assert old in text
    (tmp_path / f"{name}.py").write_text(text.replace(old, new))
    said = ""
    with contextlib.suppress(Exception):  # to fail is to say otherwise, too
        said = run(tmp_path / f"{name}.py")
    assert not re.fullmatch(SAYS[name], said)


def test_every_example_is_tried_short_and_on_the_page() -> None:
    programs = sorted((ROOT / "examples").glob("*.py"))
    assert [program.stem for program in programs] == sorted(SAYS)
    page = (ROOT / "docs" / "integrations" / "index.md").read_text()
    for program in programs:
        assert f'--8<-- "examples/{program.name}"' in page
        assert len(program.read_text().splitlines()) <= 80
