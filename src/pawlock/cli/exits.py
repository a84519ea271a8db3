"""The exit codes of the command, and how it prints: one line on standard error, beginning with `pawlock: `."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from enum import IntEnum
from typing import Self

__all__ = [
    "EndedBy",
    "Exit",
    "by_signal",
    "clear_status",
    "code_of",
    "die",
    "drop_output",
    "ended_by",
    "explained",
    "is_terminal",
    "say",
    "show_status",
    "use_json",
]

_COLOURS = {"red": "31", "yellow": "33", "dim": "2"}
_CLEAR = "\r\033[K"
_NOUNS = ("read 'locks': ", "read 'audit': ")
_HELPS = {
    "REDIS_CONNECTION_ERROR": "check the address (--url, PAWLOCK_URL), the network and the server, or run "
    "`pawlock doctor`",
    "LOCK_TIMEOUT": "wait longer (-w), or find the holder with `pawlock show`",
}
"""Fixes in the terms of the command, where the docstring of an error gives one for programs."""


class Exit(IntEnum):
    """The command's exit codes, where they are not the child's own. Most are those of sysexits.h."""

    OK = 0
    USAGE = 64
    UNAVAILABLE = 69
    OUTPUT = 74
    CONFLICT = 75
    LOST = 76
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


def drop_output() -> None:
    """Let what is left in the buffer go nowhere: Python's own end would fail at it again, with another exit code."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def by_signal(number: int) -> int:
    """Return the exit code of what a signal ended, as shells count: 128 + n."""
    return 128 + number


class EndedBy(int):
    r"""The exit code of what Ctrl-C or Ctrl-\ has ended: the process is to end by that signal itself.

    A shell goes on with its script, or its loop, after a command that *exits* with 130; it stops after one that died.

    Attributes:
        number: The signal.
    """

    number: int

    def __new__(cls, number: int) -> Self:
        """Make it from the signal's number."""
        made = super().__new__(cls, by_signal(number))
        made.number = number
        return made


def ended_by(number: int) -> int:
    """Return the exit code of what this signal has ended; one that a terminal sends is to end us as well."""
    terminal = {signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT)}
    return EndedBy(number) if number in terminal else by_signal(number)


def die(code: EndedBy) -> int:
    """End this process by the signal. Everything must have been cleaned up: nothing runs after it.

    Returns:
        The exit code, where the system has no such signals.
    """
    if os.name != "posix":
        return int(code)
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(code.number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {code.number})
    os.kill(os.getpid(), code.number)
    return int(code)


def code_of(error: BaseException) -> int:
    """Return the exit code for an error of the library."""
    from pawlock import errors

    if isinstance(error, errors.ConfigurationError):
        return Exit.USAGE
    if isinstance(error, errors.NotAcquired):
        return Exit.CONFLICT
    return Exit.LOST if isinstance(error, errors.NotHeld | errors.LeaseLost) else Exit.UNAVAILABLE


def explained(error: BaseException) -> str:
    """Say in one line what happened, its stable code, and the fix, in terms of the command where it has its own."""
    from pawlock import errors

    said = " ".join(str(error).split()) or type(error).__name__
    for noun in _NOUNS:  # how the library names a request that is about no single lock
        said = said.removeprefix(noun)
    code = getattr(error, "code", "")
    if isinstance(error, errors.NotAcquired) and error.holder:
        return f"{error.name!r} is held by {error.holder} [{code}]"
    if getattr(error, "operation", "") == "force_release":
        return f"{said}. Fix: see what is held with `pawlock ls` or `pawlock show`"
    if code in _HELPS:
        return f"{said}. Fix: {_HELPS[code]}"
    _, found, fix = (type(error).__doc__ or "").partition("Solution: ")
    if not found:  # the message itself says how to fix it
        return said
    fix = " ".join(fix.partition("\n\n")[0].split()).replace("``", "`")
    return f"{said}. Fix: {fix}"


class _Format:
    """How the command prints: for people, or for programs."""

    as_json = False


def use_json() -> None:
    """From now on, print every line as a JSON object."""
    _Format.as_json = True


def say(text: str, *, colour: str = "", **fields: object) -> None:
    """Write one line for the user.

    Args:
        text: What to say, without the prefix.
        colour: "red", "yellow", "dim" or "" (default); used on a terminal only, and never with NO_COLOR set.
        fields: Further members of the JSON object.
    """
    if _Format.as_json:
        import json

        level = {"red": "error", "yellow": "warning"}.get(colour, "info")
        _write(json.dumps({"level": level, **fields, "text": text}) + "\n")
        return
    prefix = "pawlock: "
    if is_terminal():
        if colour in _COLOURS and not os.environ.get("NO_COLOR"):
            text = f"\033[{_COLOURS[colour]}m{text}\033[0m"
        prefix = _CLEAR + prefix
    _write(f"{prefix}{text}\n")


def show_status(text: str) -> None:
    """Replace the line at the bottom of the terminal; does nothing where there is none."""
    if is_terminal() and not _Format.as_json:
        width = _columns()
        _write(f"{_CLEAR}pawlock: {text}"[: width + len(_CLEAR) - 1])


def clear_status() -> None:
    """Take the line of `show_status` away."""
    if is_terminal() and not _Format.as_json:
        _write(_CLEAR)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def is_terminal() -> bool:
    """Say whether a person reads what is said."""
    try:
        return sys.stderr.isatty()
    except (ValueError, AttributeError):  # closed, or there was none from the start
        return False


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # Nobody reads the output any more. The exit code still counts, and the child must be looked after.
        return
