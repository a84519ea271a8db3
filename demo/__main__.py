"""`python -m demo`: see what a lock is for, and what this one does when its holder dies."""

import argparse
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from demo.board import Board, make_board
from demo.story import Setting, verdict, with_lock, without_lock


class Stopped(BaseException):
    """A signal asked the demo to end; raised where it is, so that everything is cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # a handler's signature
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # the clean-up takes a moment and is not to be interrupted
    raise Stopped(number)


@contextmanager
def _server(folder: Path) -> Generator[str]:
    """Start an embedded server of the demo's own and yield its URL; it is gone afterwards."""
    import pawlock.embedded

    state = folder / "state"
    # Should the demo be killed before it can stop it, the server leaves by itself, and soon.
    os.environ.setdefault("PAWLOCK_EMBEDDED_IDLE", "10")
    pawlock.embedded.ensure(state)
    try:
        yield f"embedded://{state}"
    finally:
        pawlock.embedded.stop(state, force=True)


def _play(setting: Setting, board: Board) -> int:
    began = time.monotonic()
    try:
        oversold = without_lock(setting, board)
        with _server(setting.folder) as url:
            books, witness = with_lock(setting, url, board)
    finally:
        _show_errors(setting.folder / "errors")
    rows = verdict(setting, oversold, books, witness)
    right = all(row[3] for row in rows)
    board.title("Verdict")
    board.verdict(rows)
    board.say("")
    seconds = time.monotonic() - began
    board.say(f"{'exact' if right else 'NOT as it should be'}, in {seconds:.1f} s", loud=not right)
    return 0 if right else 1


def _show_errors(path: Path) -> None:
    """Show what the workers complained about; nothing when all went well."""
    if path.exists():
        sys.stderr.write(path.read_text(errors="replace"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="A shop, without a lock and with pawlock."
    )
    parser.add_argument("--plain", action="store_true", help="lines only, as when the output is no terminal")
    parser.add_argument("--fast", action="store_true", help="less work for each order")
    return parser.parse_args()


def main() -> int:
    """Play both parts.

    Returns:
        0 when every sum is exact and the fences rose; 1 when not; 128 + n when signal n ended it.
    """
    chosen = _arguments()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # seen at once also through a pipe
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    with ExitStack() as stack:
        try:
            folder = Path(tempfile.mkdtemp(prefix="pawlock-demo-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            setting = Setting(folder=folder, think=0.002 if chosen.fast else 0.01)
            board = make_board(plain=chosen.plain or not sys.stdout.isatty())
            with board:
                return _play(setting, board)
        except TimeoutError as error:
            sys.stderr.write(f"\n{error}\n")
            return 1
        except Stopped as stopped:
            sys.stderr.write("\nstopped; nothing is left running\n")
            return 128 + stopped.number


if __name__ == "__main__":
    sys.exit(main())
