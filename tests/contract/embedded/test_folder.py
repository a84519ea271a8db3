"""The folder of a server: removed under it, read-only, on a full disk; and started from a zip."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import pawlock
from pawlock import embedded
from pawlock.errors import BackendUnavailable
from tests.support.command import call
from tests.support.embedded import Spawn, eventually, workers

SOURCE = Path(pawlock.__file__).parent


def start_supervised(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a server whose supervisor looks often."""
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", "2")
    embedded.ensure(state)
    assert workers(state)


def remove(state: Path) -> None:
    """Remove the folder under its server, which ends."""
    while state.exists():
        shutil.rmtree(state, ignore_errors=True)
    assert eventually(lambda: not workers(state), 20), workers(state)


@pytest.mark.parametrize(
    "delay", [0.0, 0.1, *(pytest.param(delay, marks=pytest.mark.slow) for delay in (0.01, 0.03, 0.3))]
)
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc to see who is left")
def test_a_folder_that_is_removed_early_leaves_nothing_running(
    state: Path, monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    """Also before the supervisor has found its server: the folder of a test lives for a moment."""
    start_supervised(state, monkeypatch)
    time.sleep(delay)
    remove(state)
    assert not state.exists(), "somebody made it again"


@pytest.mark.parametrize("name", ["lock", "sock", "pids"])
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc to see who is left")
def test_a_folder_that_is_removed_bit_by_bit_leaves_nothing_running(
    state: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its supervisor looks while some of the files are gone and the others are not."""
    start_supervised(state, monkeypatch)
    (state / name).unlink(missing_ok=True)
    (state / "sock").unlink(missing_ok=True)
    time.sleep(0.3)
    remove(state)


ZIPPED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pawlock import embedded
assert embedded.__file__.startswith(sys.argv[1]), embedded.__file__
embedded.ensure(sys.argv[2])
print(embedded.status(sys.argv[2]).running, flush=True)
"""


def test_from_a_zip_it_starts_and_leaves(
    state: Path, tmp_path: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as into:
        for file in SOURCE.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                into.write(file, Path("pawlock") / file.relative_to(SOURCE))
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", "0.3")
    assert spawn(ZIPPED, packed, state).communicate(timeout=60)[0] == "True\n"
    assert eventually(lambda: not workers(state), 20)


def test_a_folder_that_takes_no_files_is_explained(state: Path) -> None:
    """A read-only or full file system, or a folder in the place of a file: never a bare ``OSError``."""
    for file in ("lock", "server.log"):
        (state / file).mkdir(parents=True)
        state.chmod(0o700)
        with pytest.raises(BackendUnavailable, match=r"cannot use .*PAWLOCK_STATE_DIR"):
            embedded.ensure(state)
        with pytest.raises(pawlock.PawlockError), pawlock.connect(f"embedded://{state}") as client:
            client.lock("job", unavailable_after=1).acquire(timeout=0)
        code, _, err = call("server", "start", "--state-dir", str(state))
        assert (code, err.count("\n")) == (69, 1), (file, err)
        shutil.rmtree(state)


FULL = """
import os
import pawlock
from pawlock import embedded
state = os.path.join(os.getcwd(), "state")
os.mkdir(state, 0o700)
with open("fill", "wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
with pawlock.connect("embedded://" + state) as client:
    with client.lock("job"):
        print("held on", embedded.status(state).pid)
    print("held on", embedded.ensure(state).pid)
embedded.stop(state)
"""
DISK = ["unshare", "-m", "sh", "-ec", 'mount -t tmpfs -o size=64k pawlock "$0"; cd "$0"; exec "$@"']


def test_a_disk_that_is_full_does_not_matter(tmp_path: Path) -> None:
    around = [*DISK, str(tmp_path)]
    try:
        allowed = (
            subprocess.run([*around, "true"], capture_output=True, check=False, timeout=20).returncode == 0
        )
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("no namespaces for this user")
    done = subprocess.run(
        [*around, sys.executable, "-c", FULL], capture_output=True, text=True, check=False, timeout=60
    )
    assert len(done.stdout.splitlines()) == 2, done
    assert len(set(done.stdout.splitlines())) == 1, done
