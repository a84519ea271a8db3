"""Runs django-redis' own lock tests, unmodified, with the drop-in: ``python -m tests.integrations.compat.django_redis``.

They come from its source distribution, and run in an environment of their own with this checkout's pawlock. Only the
address of the server and the client class are written into their settings.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VERSION = "7.0.0"
SETTINGS = ("sqlite", "sqlite_herd", "sqlite_json", "sqlite_sharding", "sqlite_zlib")
"""Those that need one server and nothing besides; each in a process, since Django can be set up once."""

_OPTION = '"OPTIONS": {"REDIS_CLIENT_CLASS": "pawlock.compat.redis.Redis", '


OURS = """
from pawlock.compat.redis import Lock

def test_lock_is_ours(cache):
    assert isinstance(cache.lock("foobar"), Lock)
"""
"""Without it, nobody would notice that redis-py's lock was tried."""


def prepared(folder: Path) -> Path:
    """An environment with django-redis, and its tests beside it.

    Raises:
        CalledProcessError: The package index does not answer.
    """
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    wanted = (
        f"django-redis=={VERSION}",
        "django<6",
        "hiredis>=3",
        "msgpack",
        "pytest>=8.3",
        "pytest-mock",
        "pytest-xdist",
    )
    subprocess.run([python, "-m", "pip", "install", *quiet, *wanted], check=True, timeout=300)
    source = ("--no-deps", "--no-binary", ":all:", "--dest", str(folder), f"django-redis=={VERSION}")
    subprocess.run([python, "-m", "pip", "download", *quiet, *source], check=True, timeout=300)
    with tarfile.open(folder / f"django_redis-{VERSION}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return python


def run(url: str) -> list[subprocess.CompletedProcess[str]]:
    """Run the tests with each of the settings."""
    with tempfile.TemporaryDirectory(prefix="pawlock-compat-") as made:
        folder = Path(made)
        python = prepared(folder)
        source = folder / f"django_redis-{VERSION}"
        for settings in SETTINGS:
            path = source / "tests" / "settings" / f"{settings}.py"
            text = re.sub(r"redis://127\.0\.0\.1:6379", url.removesuffix("/0"), path.read_text())
            path.write_text(text.replace('"OPTIONS": {', _OPTION))
        (source / "tests" / "test_ours.py").write_text(OURS)
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:pawlock",
            "-c",
            "/dev/null",
        ]
        command += ["--rootdir", str(source), "tests/test_backend.py", "tests/test_ours.py"]
        return [
            subprocess.run(
                [*command, "-k", f"test_lock and [{settings}]"],
                cwd=source,
                env=environ,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            for settings in SETTINGS
        ]


def main() -> int:
    """Run the tests; 1 if any failed."""
    from tests.support.servers import Server

    with Server("valkey") as server:
        done = run(server.url)
    for settings, one in zip(SETTINGS, done, strict=True):
        print(f"{settings}: {one.stdout.strip().splitlines()[-1]}", flush=True)
        if one.returncode:
            print(one.stdout[-4000:], one.stderr[-2000:])
    return int(any(one.returncode for one in done))


if __name__ == "__main__":
    sys.exit(main())
