"""`make demo` ends well, ends early when asked to, and leaves nothing behind either way."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from demo.crew import Member
from demo.shop import Shop, StaleWrite, create
from demo.story import Setting, Witness, read_books, verdict
from tests.support.pace import pace

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder whose path leaves room for a socket in the folders that the demo makes in it."""
    with tempfile.TemporaryDirectory(prefix="d-") as folder:
        yield Path(folder)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the demo with a temporary folder of its own, so that all it leaves can be seen."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PAWLOCK_")}
    env = {**kept, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "demo", *arguments],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_with(word: str) -> list[str]:
    """Command lines and environments of running processes that name something."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if word.encode() in text and state not in "ZX":
            found.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return found


def nothing_left(folder: Path) -> None:
    end = time.monotonic() + 5
    while processes_with(str(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_with(str(folder)) == []
    assert [path for path in folder.iterdir() if path.name.startswith("pawlock")] == []


@pytest.mark.slow
def test_it_ends_well(tmp_path: Path) -> None:
    began = time.monotonic()
    demo = start(tmp_path, "--plain", "--fast")
    out, err = demo.communicate(timeout=60)
    assert err == ""
    assert demo.returncode == 0, out
    assert re.search(r"sold \d+ of 200 pieces: \d+ customers paid for nothing", out)
    assert "killed with SIGKILL as it held it" in out
    assert "the database refuses its stale fencing token" in out
    assert "exact, in" in out
    assert out.count("  ok") == 13
    assert time.monotonic() - began < pace() * 60
    nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("number", "when"),
    [
        (signal.SIGINT, "1  Without"),
        pytest.param(signal.SIGTERM, "grants, fence", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: signal.Signals, when: str) -> None:
    demo = start(tmp_path, "--plain")
    assert demo.stdout is not None
    while when not in demo.stdout.readline():
        assert demo.poll() is None
    time.sleep(0.3)
    os.killpg(demo.pid, number)  # as the terminal does: to all of it
    _, err = demo.communicate(timeout=20)
    assert demo.returncode == 128 + number
    assert err.strip() == "stopped; nothing is left running"
    nothing_left(tmp_path)


@pytest.mark.slow
def test_killed_it_leaves_no_worker(tmp_path: Path) -> None:
    demo = start(tmp_path, "--plain")
    assert demo.stdout is not None
    while "grants, fence" not in demo.stdout.readline():
        assert demo.poll() is None
    demo.kill()
    demo.communicate(timeout=20)
    end = time.monotonic() + 5
    while workers := [line for line in processes_with(str(tmp_path)) if "demo.worker" in line]:
        assert time.monotonic() < end, workers
        time.sleep(0.05)
    import pawlock.embedded

    for state in tmp_path.glob("pawlock-demo-*/state"):
        pawlock.embedded.stop(state, force=True)


def test_an_old_fence_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    create(path, pieces=2, orders=3)
    with closing(Shop(path, 1)) as late, closing(Shop(path, 2)) as new:
        first, second = late.next_order(), new.next_order()
        assert (first, second) == (1, 2)
        read = late.pieces()
        assert new.sell(2, new.pieces(), 11)
        with pytest.raises(StaleWrite):
            late.sell(1, read, 10)
        assert late.put_back(1) == 1
    books = read_books(path)
    assert (books.sold, books.left, books.open, books.fences) == (1, 1, 2, (11,))


def test_the_verdict_sees_what_is_wrong(tmp_path: Path) -> None:
    setting = Setting(folder=tmp_path, pieces=1, orders=2)
    process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    process.wait()
    dead = Member(2, process, state="killed")
    witness = Witness(
        fences=[(1.0, 5), (2.0, 6)], victim=dead, killed_at=3.0, next_grant_at=4.0, put_back=1, stale=1
    )
    path = tmp_path / "shop.db"
    create(path, pieces=1, orders=2)
    with closing(Shop(path, 1)) as shop:
        for fence in (5, 6):
            shop.sell(shop.next_order() or 0, shop.pieces(), fence)
    books = read_books(path)

    def wrong(**changes: object) -> list[str]:
        rows = verdict(setting, 3, replace(books, **changes), witness)  # type: ignore[arg-type]
        return [row[0] for row in rows if not row[3]]

    assert wrong() == []
    assert wrong(sold=2) == ["with pawlock: sold"]
    assert wrong(fences=(6, 5)) == ["fences of the writes"]
    assert wrong(fences=(5, 5)) == ["fences of the writes"]
    assert wrong(left=1) == ["left in stock"]
    assert wrong(open=1) == ["orders unfinished"]
    witness.fences = [(1.0, 6), (2.0, 5)]
    assert wrong() == ["fences of the grants"]
    witness.fences = [(1.0, 5), (2.0, 6)]
    witness.next_grant_at = 0.0
    assert wrong() == ["next grant after that"]
    assert not verdict(setting, 0, books, witness)[0][3]
