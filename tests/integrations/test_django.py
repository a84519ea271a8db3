"""``pawlock.integrations.django``: the cases of ``django_cases.py`` in a process of their own, with several versions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.fencing import databases
from tests.nightly.apps.rig import ROOT, rig
from tests.support.servers import Server

CASES = Path(__file__).with_name("django_cases.py")


def run(server: Server, folder: Path, python: str = sys.executable, more: str = "") -> str:
    path = os.pathsep.join(filter(None, (more, str(ROOT / "src"), str(ROOT))))
    environ = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)}
    for variable in ("PAWLOCK_URL", "PAWLOCK_NAMESPACE"):
        environ.pop(variable, None)
    command = [python, "-W", "error::ResourceWarning", str(CASES), server.url]
    done = subprocess.run(
        command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_the_version_that_is_installed(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    assert run(valkey, tmp_path).startswith("12 cases")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.2.*", "5.2.*", ""])
def test_another_version(version: str, valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    wanted = f"django=={version}" if version else "django"
    packages = tmp_path / "packages"
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(packages), wanted]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"{wanted} could not be installed")
    said = run(valkey, tmp_path, more=str(packages))
    assert said.startswith(f"12 cases {version.rstrip('*')}")


@pytest.mark.slow
def test_an_earlier_holder_that_waits_for_a_row_is_refused(tmp_path: Path) -> None:
    with databases.postgresql(tmp_path) as connection, rig(tmp_path, {}) as here:
        where = connection.info
        program = str(CASES.with_name("django_rows.py"))
        done = here.run("python", program, where.host, where.user, where.dbname)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "the earlier holder wrote nothing"


def test_importing_pawlock_or_the_locks_imports_no_django(tmp_path: Path) -> None:
    program = (
        "import sys, pawlock, pawlock.integrations\n"
        "assert not {'django', 'starlette', 'apscheduler', 'alembic', 'celery'} & {*sys.modules}\n"
        "import pawlock.integrations.asgi, pawlock.integrations.apscheduler, pawlock.integrations.alembic\n"
        "assert not {'django', 'starlette', 'apscheduler', 'alembic', 'celery'} & {*sys.modules}\n"
    )
    with rig(tmp_path, {}) as here:
        done = here.run("python", "-c", program)
    assert done.returncode == 0, done.stderr


def newer_python() -> str:
    """A Python that the newest Django runs on: this one, one on PATH, or one that is installed beside this one."""
    beside = sorted(Path(sys.base_prefix).parent.glob("*/bin/python3.1[2-9]"))
    named = [shutil.which(f"python3.{minor}") for minor in (13, 12, 14)]
    for python in (sys.executable, *filter(None, named), *map(str, beside)):
        check = [python, "-c", "import sys, ensurepip; sys.exit(sys.version_info < (3, 12))"]
        if subprocess.run(check, capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip("no Python 3.12 or later beside this one")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_newest_version_with_a_python_that_it_runs_on(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    environment = tmp_path / "environment"
    subprocess.run([newer_python(), "-m", "venv", str(environment)], check=True, capture_output=True)
    python = str(environment / "bin" / "python")
    command = [python, "-m", "pip", "install", "-q", "django>=6", "redis", "hiredis"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("django>=6 could not be installed")
    assert run(valkey, tmp_path, python).startswith("12 cases 6.")
