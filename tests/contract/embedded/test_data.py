"""What a server's data survive, who may open them, and what is said when they cannot be read."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import pawlock
from pawlock import embedded
from pawlock.embedded import _data, _places, _watch
from pawlock.embedded._watch import Connection
from pawlock.errors import BackendUnavailable, ConfigurationError

Spawn = Callable[..., "subprocess.Popen[str]"]
SOURCE = Path(pawlock.__file__).parent


def ask(server: embedded.EmbeddedServer, *args: str) -> _watch.Reply:
    with Connection(server.socket, 5.0) as connection:
        return connection.ask(*args)


def eventually(condition: Callable[[], bool], timeout: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def processes_of(state: Path) -> list[int]:
    """Who works in a folder, also when it is gone: the server and its watcher."""
    found: list[int] = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            at = str(cwd.readlink()).removesuffix(" (deleted)")
        except OSError:
            continue
        if at == str(state):
            found.append(int(cwd.parent.name))
    return found


@pytest.mark.parametrize("round_", range(4))
def test_a_killed_server_forgets_nothing_that_it_answered(state: Path, round_: int) -> None:
    """Killed in the middle of writes of four threads: no reply waits for the disk, and none is forgotten."""
    server = embedded.ensure(state)
    answered = [0] * 4

    def write(at: int) -> None:
        try:
            with Connection(server.socket, 5.0) as connection:
                while True:
                    answered[at] = int(str(connection.ask("HINCRBY", f"{{pawlock:{at}}}:fence", "last", "1")))
        except OSError:
            return

    threads = [threading.Thread(target=write, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: min(answered) > 50 * (round_ + 1))
    os.kill(server.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    again = embedded.ensure(state)
    kept = [int(str(ask(again, "HGET", f"{{pawlock:{at}}}:fence", "last"))) for at in range(4)]
    assert all(now - was in (0, 1) for now, was in zip(kept, answered, strict=True)), (kept, answered)


def other_product(folder: Path, name: str, version: str) -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("wrote", "opens", "refused"),
    [
        ("valkey 9.1.2", "Redis server v=7.2.4 sha=0", True),
        ("valkey 8.0.0", "Redis server v=8.0.0 sha=0", True),
        ("redis 7.4.1", "Valkey server v=9.1.2 sha=0", True),
        ("redis 7.2.4", "Valkey server v=9.1.2 sha=0", False),
        ("redis 6.2.0", "Redis server v=7.0.15 sha=0", False),
    ],
)
def test_who_opens_whose_data(tmp_path: Path, wrote: str, opens: str, *, refused: bool) -> None:
    (tmp_path / "appendonlydir").mkdir()
    product, version = wrote.split()
    told = {"product": product, "version": version, "boot": "b"}
    (tmp_path / "written-by").write_text(json.dumps(told))
    program = _places._inspect(str(other_product(tmp_path, "server", opens)))
    assert isinstance(program, _places.Program)
    if not refused:
        _data.refuse_other_product(tmp_path, program)
        return
    with pytest.raises(
        ConfigurationError, match=f"were written by {product.capitalize()} {version}, and .*cannot read"
    ):
        _data.refuse_other_product(tmp_path, program)


def test_a_program_from_path_leaves_the_data_of_another_alone(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(embedded.ensure(state), "SET", "k", "v")
    embedded.stop(state)
    redis = other_product(tmp_path, "redis-server", "Redis server v=7.0.15 sha=0 bits=64")
    with monkeypatch.context() as patch:
        patch.setattr(_places, "_bundled", lambda: None)
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(ConfigurationError) as raised:
            embedded.ensure(state)
        text = str(raised.value)
        assert str(redis) in text
        assert "PAWLOCK_SERVER_BIN" in text
        assert "PAWLOCK_STATE_DIR" in text
        assert "\n" not in text
    assert ask(embedded.ensure(state), "GET", "k") == "v"


def test_a_program_from_path_is_named(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PAWLOCK_SERVER_BIN", _places.find_program().path)
    with caplog.at_level(logging.INFO, "pawlock.embedded"):
        binary = embedded.ensure(state).binary
    assert [
        record.message for record in caplog.records if "not the one of pawlock[embedded]" in record.message
    ]
    assert binary in caplog.text


def damage(state: Path) -> None:
    """What a machine that goes down leaves of a file that was not written to the disk: zeros."""
    for file in (state / "appendonlydir").glob("*.aof"):
        size = file.stat().st_size
        with file.open("r+b") as data:
            data.seek(size // 2)
            data.write(b"\0" * 200)


def filled(state: Path) -> None:
    server = embedded.ensure(state)
    for number in range(100):
        ask(server, "SET", f"k{number}", "v" * 50)
    embedded.stop(state)
    damage(state)


@pytest.mark.skipif(
    not Path("/proc/sys/kernel/random/boot_id").exists(), reason="this system does not name its boots"
)
def test_data_that_a_crash_of_the_machine_damaged_are_set_aside(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(state)
    told = json.loads((state / "written-by").read_text())
    (state / "written-by").write_text(json.dumps({**told, "boot": "another"}))
    with caplog.at_level(logging.WARNING, "pawlock.embedded"):
        server = embedded.ensure(state)
    assert ask(server, "DBSIZE") == 0
    assert "damaged in a crash of the machine" in caplog.text
    assert [entry for entry in state.iterdir() if ".damaged-" in entry.name]


def test_data_that_somebody_else_damaged_are_left_alone(state: Path) -> None:
    filled(state)
    with pytest.raises(BackendUnavailable, match="did not start") as raised:
        embedded.ensure(state)
    text = str(raised.value)
    assert "\n" not in text
    assert len(text) < 1000
    assert str(state / "server.log") in text
    assert not [entry for entry in state.iterdir() if ".damaged-" in entry.name]
    shutil.rmtree(state / "appendonlydir")


def start_watched(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a server whose watcher looks often."""
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", "2")
    embedded.ensure(state)
    assert processes_of(state)


def remove(state: Path) -> None:
    """Remove the folder under its server, which ends."""
    while state.exists():
        shutil.rmtree(state, ignore_errors=True)
    assert eventually(lambda: not processes_of(state)), processes_of(state)


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.1, 0.3])
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc to see who is left")
def test_a_folder_that_is_removed_early_leaves_nothing_running(
    state: Path, monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    """Also before the watcher has found its server: the folder of a test lives for a moment."""
    start_watched(state, monkeypatch)
    time.sleep(delay)
    remove(state)
    assert not state.exists(), "somebody made it again"


@pytest.mark.parametrize("name", [_watch.ALIVE, _watch.SOCKET, _watch.PIDFILE])
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc to see who is left")
def test_a_folder_that_is_removed_bit_by_bit_leaves_nothing_running(
    state: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its watcher looks while some of the files are gone and the others are not."""
    start_watched(state, monkeypatch)
    (state / name).unlink()
    (state / _watch.SOCKET).unlink(missing_ok=True)
    time.sleep(0.3)
    remove(state)


ZIPPED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pawlock import embedded
assert embedded.__file__.startswith(sys.argv[1]), embedded.__file__
server = embedded.ensure(sys.argv[2])
print(embedded.status(sys.argv[2]).watched, flush=True)
"""


def test_from_a_zip_it_is_watched_and_leaves(
    state: Path, tmp_path: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as into:
        for file in SOURCE.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                into.write(file, Path("pawlock") / file.relative_to(SOURCE))
    monkeypatch.setenv("PAWLOCK_EMBEDDED_IDLE", "0.3")
    assert spawn(ZIPPED, packed, state).communicate(timeout=60)[0] == "True\n"
    assert eventually(lambda: not _watch.server_lives(str(state)))
    assert eventually(lambda: not _watch.watcher_lives(str(state)))


@pytest.mark.parametrize("file", ["lock", "alive", "watch", "server.log"])
def test_a_folder_that_takes_no_files_is_explained(state: Path, file: str) -> None:
    """A read-only or full file system, or a folder in the place of a file: never a bare ``OSError``."""
    (state / file).mkdir(parents=True)
    state.chmod(0o700)
    with pytest.raises(BackendUnavailable, match=r"cannot use .*PAWLOCK_STATE_DIR"):
        embedded.ensure(state)
    with pytest.raises(pawlock.PawlockError), pawlock.connect(f"embedded://{state}") as client:
        client.lock("job", unavailable_after=1).acquire(timeout=1)
    done = subprocess.run(
        [sys.executable, "-m", "pawlock", "server", "start", "--state-dir", str(state)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr.count("\n")) == (69, 1), done.stderr
    shutil.rmtree(state)


FULL = """
import os, sys
from pawlock import embedded
from pawlock.errors import BackendUnavailable
with open("fill", "wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
try:
    embedded.ensure(os.path.join(os.getcwd(), "state"))
except BackendUnavailable as error:
    print(error)
"""
DISK = ["unshare", "-m", "sh", "-ec", 'mount -t tmpfs -o size=64k pawlock "$0"; cd "$0"; exec "$@"']


def test_a_disk_that_is_full_is_named(tmp_path: Path) -> None:
    """Its server cannot even log why it ends."""
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
    assert (
        f"nothing can be written to the disk of {tmp_path / 'state'}: No space left on device" in done.stdout
    ), done
    assert done.stdout.count("\n") == 1


def test_a_server_that_says_nothing_is_explained_by_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _data.why_not(tmp_path, "\n") == "nothing"
    assert list(tmp_path.iterdir()) == []

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert _data.why_not(tmp_path, "").endswith(f"to the disk of {tmp_path}: No space left on device")
    assert _data.why_not(tmp_path, "1:M 22 Nov 2026 15:30:00.000 # a word") == "a word"
