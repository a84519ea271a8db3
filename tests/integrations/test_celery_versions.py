"""``pawlock.integrations.celery`` with the oldest Celery that it supports, and with django-celery-beat."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly.apps.rig import ROOT
from tests.support.servers import Server

TESTS = ("test_celery_beat.py", "test_celery_unique.py")
OF_WORKERS = "test_celery_workers.py::test_retry_and_chord_and_keep"


def installed(folder: Path, wanted: str) -> str:
    """Where a package was installed beside the environment, or skip."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), wanted]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"{wanted} could not be installed")
    return str(folder)


def run(packages: str, *command: str, timeout: float = 280) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([packages, str(ROOT / "src"), str(ROOT)])
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PAWLOCK_"))}
    environ |= {"PYTHONPATH": path, "PYTHONWARNINGS": "default"}
    return subprocess.run(
        [sys.executable, *command],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["5.4.0", "5.5.*"])
def test_another_version(version: str, tmp_path: Path) -> None:
    """The tests beside this one."""
    packages = installed(tmp_path / "packages", f"celery=={version}")
    found = run(packages, "-c", "import celery; print(celery.__version__)")
    assert found.stdout.startswith(version.rstrip("*")), found.stdout
    options = ("-q", "-p", "no:cacheprovider", "-W", "default")
    for chosen in (("-m", "not slow", *TESTS), (OF_WORKERS,)):
        paths = [str(Path(__file__).with_name(one)) if one.startswith("test_") else one for one in chosen]
        done = run(packages, "-m", "pytest", *options, *paths)
        assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_entries_of_a_database(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    packages = installed(tmp_path / "packages", "django-celery-beat")
    done = run(packages, "-m", "tests.integrations.celery_database", valkey.url, str(tmp_path), timeout=120)
    assert done.stdout.splitlines()[-1:] == ["once each"], done.stdout + done.stderr
