"""What a command prints, shown as it comes and recorded; and how `pawlock once` records it and shows it again."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pawlock.cli._signals import SignalPipe, readable
from pawlock.cli.exits import Exit, say

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from pawlock import Done

__all__ = ["Output", "Recording", "Stream"]

_MOST = 65536
_LARGEST_PIPE = 1 << 20
_SOON = 0.5
_LOOK_EVERY = 0.05
_STDOUT = 1
_STDERR = 2
_FIRST_FREE = 3
_MARK = "pawlock_once"


class Output:
    """What a child prints, on two pipes.

    Attributes:
        out: Its standard output.
        err: Its standard error.
        notice: Prints a last line once all of it was shown; None prints nothing.
    """

    def __init__(self) -> None:
        # Where one was closed before we began, its number may be that of a connection by now.
        self.out = Stream(_STDOUT, is_open=sys.stdout is not None)
        self.err = Stream(_STDERR, is_open=sys.stderr is not None)
        self.notice: Callable[[], None] | None = None

    @property
    def pipes(self) -> dict[int, tuple[int, int]]:
        """The descriptors to read from and to write to, by the child's descriptor."""
        return {_STDOUT: self.out.pipe, _STDERR: self.err.pipe}

    @property
    def write_error(self) -> OSError | None:
        """Why not all of standard output could be shown; None so far, and where its reader has closed it."""
        found = self.out.write_error
        return None if found is None or found.errno == errno.EPIPE else found

    def start(self) -> None:
        """Begin to show what comes."""
        self.out.start()
        self.err.start()

    def drain(self) -> None:
        """Take all that the child has written; it has ended. What others write to the pipes later is nobody's."""
        self.out.drain()
        self.err.drain()

    def flush(self, signals: SignalPipe, ends: Container[int]) -> None:
        """Show the rest and print the notice, unless one of these signals comes first."""
        if self.out.flush(signals, ends) and self.err.flush(signals, ends) and self.notice is not None:
            self.notice()


class Stream:
    """A pipe for one output of a child: what comes through it is shown, and its beginning is kept.

    A thread shows it, since the reader of our own output may take any time: the main loop minds the lease meanwhile,
    and the child waits as it would without us. Once nobody reads any more, the child goes on, and nothing is shown.

    Attributes:
        pipe: The descriptors to read from and to write to.
        kept: The beginning of what was written.
        size: Bytes that were written in all.
        write_error: The error that kept some of it from being shown; None so far.

    Args:
        target: Our own descriptor, where it is shown.
        is_open: Whether that was open when we began.
    """

    def __init__(self, target: int, *, is_open: bool) -> None:
        read, write = (_above_standard(one) for one in os.pipe())
        os.set_blocking(read, False)
        self.pipe: tuple[int, int] = (read, write)
        self.kept = bytearray()
        self.size = 0
        self.write_error: OSError | None = None if is_open else OSError(errno.EBADF, "it is closed")
        self._target = target
        self._stop, self._stopper = os.pipe()
        self._guard = threading.Lock()
        self._unshown: deque[bytes] = deque()
        self._ended = False
        self._thread = threading.Thread(target=self._show, name="pawlock-output", daemon=True)

    def start(self) -> None:
        """Begin to show what comes."""
        self._thread.start()

    def show(self, data: bytes) -> None:
        """Show this at the end."""
        if data:
            self._unshown.append(data)

    def drain(self) -> None:
        """Take all that the child has written."""
        with self._guard:
            taken = 0
            while not self._ended and taken < _LARGEST_PIPE and (data := self._take()):
                taken += len(data)
            self._ended = True

    def flush(self, signals: SignalPipe, ends: Container[int]) -> bool:
        """Show the rest; False if one of these signals comes first."""
        self.drain()
        if not self._thread.is_alive():
            if not self._unshown:
                return True
            self._thread = threading.Thread(target=self._show, name="pawlock-output", daemon=True)
            self._thread.start()
        os.write(self._stopper, b"\0")  # the supervisor has a copy of this end: closing it would say nothing
        self._thread.join(_SOON)
        while self._thread.is_alive():
            readable([signals], _LOOK_EVERY)
            if any(number in ends for number in signals.received()):
                return False
        return True

    def _take(self) -> bytes:
        """Read what is there; empty when nothing is."""
        try:
            data = os.read(self.pipe[0], _MOST)
        except BlockingIOError:
            return b""
        self.kept += data[: _MOST - len(self.kept)]
        self.size += len(data)
        if data:
            self._unshown.append(data)
        return data

    def _show(self) -> None:
        poll = select.poll()
        poll.register(self.pipe[0], select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while True:
            with self._guard:
                over = self._ended or (not self._take() and self._is_closed())
            while self._unshown:
                self._write(self._unshown.popleft())
            if over:
                return
            poll.poll()

    def _is_closed(self) -> bool:
        """Whether every writer has closed it."""
        poll = select.poll()
        poll.register(self.pipe[0], select.POLLIN)
        return any(event & select.POLLHUP and not event & select.POLLIN for _, event in poll.poll(0))

    def _write(self, data: bytes) -> None:
        while data and self.write_error is None:
            try:
                data = data[os.write(self._target, data) :]
            except BlockingIOError:  # whoever shares it has made it so
                poll = select.poll()
                poll.register(self._target, select.POLLOUT)
                poll.poll()
            except OSError as error:
                self.write_error = error


def _above_standard(number: int) -> int:
    """The same file under a number that is not one of standard input, output and error."""
    if number >= _FIRST_FREE:
        return number
    moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    os.close(number)
    return moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """How `pawlock once` records what a command did, and shows it again.

    Attributes:
        failures: Whether an exit code other than 0 is a result, too.
        skips: Whether nothing is shown again, and the exit code is 0.
        quiet: Say nothing but errors.
        verbose: Say what happens.
    """

    failures: bool = False
    skips: bool = False
    quiet: bool = False
    verbose: bool = False

    def made(self, report: dict[str, Any], output: Output) -> bytes | None:
        """The result; None if the command is to be run again.

        One that a signal has ended is always run again.
        """
        code = report.get("code")
        if code is None or (code and not self.failures):
            return None
        out, err = output.out, output.err
        # The head is as long as this at most: none of its numbers becomes longer.
        room = _MOST - len(_head(code, (out.size, out.size), (err.size, err.size)))
        kept_out = min(out.size, max(room - min(err.size, room // 2), 0))
        kept_err = min(err.size, room - kept_out)
        output.notice = lambda: self._report_truncated(out.size + err.size, kept_out + kept_err, "are")
        head = _head(code, (kept_out, out.size), (kept_err, err.size))
        return head + bytes(out.kept[:kept_out] + err.kept[:kept_err])

    def replay(self, done: Done, output: Output) -> int:
        """Show a result, and return its exit code."""
        made = _read(done.value)
        if self.verbose:
            at = done.at.astimezone().isoformat(timespec="seconds")
            text = f"it was done at {at} with fence {done.fence} and exit code {made.code}"
            say(
                text, colour="dim", event="done", fence=done.fence, at=done.at.isoformat(), exit_code=made.code
            )  # fmt: skip
        if self.skips:
            return Exit.OK
        output.out.show(made.out)
        output.err.show(made.err)
        output.notice = lambda: self._report_truncated(made.size, len(made.out) + len(made.err), "were")
        return made.code

    def _report_truncated(self, size: int, kept: int, verb: str) -> None:
        if size > kept and not self.quiet:
            text = f"the output has {size:,} bytes, of which {kept:,} {verb} recorded"
            say(text, colour="yellow", event="cut", bytes=size, recorded=kept)


class _Made(NamedTuple):
    code: int
    out: bytes
    err: bytes
    size: int


def _head(code: int, out: tuple[int, int], err: tuple[int, int]) -> bytes:
    """The line before the output: how many bytes of each stream follow, and how many there were."""
    return json.dumps({_MARK: 1, "exit_code": code, "stdout": out, "stderr": err}).encode() + b"\n"


def _read(value: Any) -> _Made:
    """What a result says; one that a program recorded is printed."""
    if isinstance(value, bytes):
        head, _, rest = value.partition(b"\n")
        with contextlib.suppress(ValueError, TypeError, KeyError):
            fields: Any = json.loads(head)
            if fields[_MARK] == 1:
                (out, all_out), (err, all_err) = fields["stdout"], fields["stderr"]
                return _Made(int(fields["exit_code"]), rest[:out], rest[out : out + err], all_out + all_err)
        return _Made(Exit.OK, value, b"", len(value))
    if value is None:
        return _Made(Exit.OK, b"", b"", 0)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    said = f"{text}\n".encode("utf-8", "surrogatepass")
    return _Made(Exit.OK, said, b"", len(said))
