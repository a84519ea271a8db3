"""The command `pawlock`: in this process, where it costs a fiftieth of what a process of its own costs; and what one gets.

What depends on a process has one: signals, terminals, an end by a signal, outputs that are closed or broken, what is loaded
at the start, and all that starts a child (`run`, `once`, `serve`). `call` refuses what it can tell of these.
"""

import contextlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import click

from pawlock.cli import exits
from pawlock.cli.main import group, run_command

__all__ = ["PAWLOCK", "ROOT", "call", "environment", "options"]

ROOT = Path(__file__).resolve().parents[2]
PAWLOCK = (sys.executable, "-m", "pawlock")


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: the checkout's pawlock, and no setting of the one who runs the tests."""
    # A terminal has its own size, whatever that of the one who runs the tests is.
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("PAWLOCK_") and key not in ("COLUMNS", "LINES")
    }
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", **more}


def call(*arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run `pawlock` with these arguments in this process, without a terminal.

    Args:
        arguments: What follows the program's name.
        env: Its whole environment; None: that of `environment()`.

    Returns:
        The exit code as ``subprocess`` tells it, what it printed, and what it said.

    Raises:
        RuntimeError: in another thread than the main one: streams, environment and signals are the process's.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the command in this process needs the main thread")
    streams: dict[str, Any] = {
        name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)
        for name, errors in (("stdin", "strict"), ("stdout", "strict"), ("stderr", "backslashreplace"))
    }
    log, root = logging.getLogger("pawlock"), logging.getLogger()
    with (
        mock.patch.dict(os.environ, environment() if env is None else env, clear=True),
        mock.patch.multiple(sys, **streams, **{f"__{name}__": one for name, one in streams.items()}),
        mock.patch.object(os, "fork", _refuse),
        mock.patch.object(exits._Format, "as_json", new=False),
        # Without pytest's handlers, so that Python prints what a library warns of, as it does for users.
        mock.patch.object(root, "handlers", []),
        mock.patch.multiple(log, handlers=[*log.handlers], level=log.level, propagate=log.propagate),
        _same_signals(),
    ):
        code = run_command(arguments)
    for one in streams.values():
        one.flush()
    out, err = (streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr"))
    return -code.number if isinstance(code, exits.EndedBy) else int(code), out, err


def options(verb: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What a verb makes of its arguments; it must know them all."""
    command = group.get_command(click.Context(group), verb)
    assert command is not None
    return dict(command.make_context(f"pawlock {verb}", list(arguments)).params)


def _refuse() -> NoReturn:
    raise AssertionError("this command starts a child: it needs a process of its own")


@contextlib.contextmanager
def _same_signals() -> Iterator[None]:
    """Put back the handlers that a command installs for its own end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
