"""What several verbs share: their client, the options that mean the same everywhere, and how they print."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping
from fnmatch import fnmatchcase
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pawlock._durations import HOW, seconds_of

if TYPE_CHECKING:
    from pawlock import Client, LockInfo

__all__ = [
    "SETTINGS",
    "KeyName",
    "Signalled",
    "age_of",
    "as_seconds",
    "chosen",
    "client_of",
    "duration",
    "given_name",
    "holder_of",
    "json_option",
    "moment",
    "name_argument",
    "print_json",
    "raise_on_signals",
    "readable",
    "record",
    "server_options",
    "where",
    "whole_holder",
    "write",
]

F = TypeVar("F", bound=Callable[..., Any])

_CLOSE_FOR = 2.0
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Of every verb: how wide its help may become, and that ``-h`` shows it."""


class Signalled(KeyboardInterrupt):
    """A signal that ends the command, raised where it arrives so that everything is cleaned up on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def raise_on_signals() -> None:
    """Let TERM and HUP end the command as Ctrl-C does, with its cleaning up, unless they are ignored."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # as the interpreter calls it
    raise Signalled(number)


# Options ------------------------------------------------------------------------------------------------------------


def server_options(function: F) -> F:
    """Add ``--url`` and ``--namespace``."""
    function = click.option(
        "--namespace", metavar="TEXT", help="Key prefix of the locks (default: pawlock)."
    )(function)
    return click.option(
        "--url", metavar="URL", help="Server URL (default: PAWLOCK_URL, else the embedded server)."
    )(function)


class KeyName(str):
    """The NAME of a command with ``--key``: reads as the name of the lock, and stands for its key."""

    __slots__ = ("key",)

    key: Any


def name_argument(function: F) -> F:
    """Add NAME and ``--key``; with that, ``given["name"]`` is a ``KeyName``."""

    @functools.wraps(function)
    def named(*args: Any, key: bool, **given: Any) -> Any:
        if key:
            given["name"] = _key_name(given["name"])
        return function(*args, **given)

    option = click.option(
        "--key",
        is_flag=True,
        help="NAME is a key that other programs lock too: KEY, redisson:N, spring:REGISTRY:N, python-redis-lock:N, …",
    )
    return cast("F", click.argument("name", metavar="NAME")(option(named)))


def _key_name(text: str) -> KeyName:
    import pawlock
    from pawlock._key_text import read_key

    try:
        key = read_key(text)
    except pawlock.ConfigurationError as error:
        raise click.UsageError(f"--key: {error}") from error
    named = KeyName(key.name)
    named.key = key
    return named


def given_name(name: str) -> Any:
    """What a client takes for a NAME: the key of a ``KeyName``, else a name that stands for exactly this text."""
    from pawlock._template import escape

    return name.key if isinstance(name, KeyName) else escape(name)


def json_option(text: str) -> Callable[[F], F]:
    """Add ``--json``; the text says what is printed then."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def as_seconds(least: float = 0.0, most: float = sys.float_info.max) -> Callable[..., float | None]:
    """Make the callback of an option that takes a duration, as all of them write it; the library checks the rest.

    Args:
        least: The shortest that makes sense, in seconds.
        most: The longest; default: any that is finite.
    """

    def read(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        if value is None:
            return None
        found = seconds_of(value)
        if found < 0:
            raise click.BadParameter(f"must be {HOW}, got {value!r}", ctx, parameter)
        if not least <= found <= most:
            bounds = f"{least:g} or more" if most >= sys.float_info.max else f"{least:g} to {most:g}"
            raise click.BadParameter(f"must be {bounds} seconds, got {value!r}", ctx, parameter)
        return found

    return read


@contextlib.contextmanager
def client_of(given: Mapping[str, Any], **options: Any) -> Generator[Client]:
    """A client of the server that the options name, with options of its own; closed at the end, within 2 seconds."""
    raise_on_signals()
    import pawlock

    client = pawlock.connect(given["url"], namespace=given["namespace"], **options)
    try:
        yield client
    finally:
        client.close(timeout=_CLOSE_FOR)


def where(url: str | None) -> str:
    """The server that is asked, without credentials."""
    from pawlock._target import find_target

    found: Any = find_target(url)
    shown = getattr(found, "shown", None)
    if shown is None and (url or os.environ.get("PAWLOCK_URL")):
        shown = found().shown
    return str(shown or "embedded://")


# Printing -----------------------------------------------------------------------------------------------------------


def write(text: str) -> None:
    """Print a line and flush it: the reader may be a program.

    Raises:
        OSError: It cannot be written; so too when standard output was closed before we began.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_json(value: object, *, indent: int | None = None) -> None:
    """Print a value as JSON, on one line by default."""
    write(json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False))


def record(info: LockInfo) -> dict[str, Any]:
    """What is known of a name, as JSON has it: a key without a ttl has ``null`` as ``ttl_left``."""
    found = dataclasses.asdict(info)
    found["ttl_left"] = info.ttl_left if math.isfinite(info.ttl_left) else None
    found["age"] = age_of(info)
    found["holder"] = whole_holder(info)
    return found


def age_of(info: LockInfo, now: float | None = None) -> float | None:
    """Seconds since it was granted, by this machine's clock; None if that is not known."""
    if info.since is None:
        return None
    return round(max(0.0, (time.time() if now is None else now) - info.since), 3)


def readable(text: str) -> str:
    """A name that is safe to print: other users chose it, so control characters are escaped."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def whole_holder(info: LockInfo) -> str:
    """Who holds it, as ``host:pid/thread``; of several, the first."""
    return info.holder or (info.holders[0].holder if info.holders else "")


def holder_of(info: LockInfo) -> str:
    """Who holds it, for a table; of several holders one, and how many more there are."""
    if not info.held:
        return "-"
    who = readable(whole_holder(info)) or ("not pawlock" if info.foreign else "?")
    # A list names one holder of each lock: the count is the server's.
    more = info.count - 1 if info.holders else 0
    return f"{who} +{more}" if more > 0 else who


def duration(value: float | None) -> str:
    """A duration as people read it."""
    if value is None:
        return "-"
    if math.isinf(value):
        return "no TTL"
    if value < 10:
        return f"{value:.1f}s"
    minutes, left = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes:02}m" if hours else f"{minutes}m {left:02}s" if minutes else f"{left}s"


def moment(at: float) -> str:
    """A moment in local time, with its zone: others read the same output elsewhere."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def chosen(info: LockInfo, wanted: str) -> bool:
    """Whether a record is what ``--filter`` asks for.

    Args:
        info: The record.
        wanted: A part of its name or of a holder as it is printed; with ``*``, ``?`` or ``[``, a pattern for all of it.
    """
    holders = [whole_holder(info), info.holder, *(one.holder for one in info.holders)]
    # A pattern for the process alone is one for all of its threads.
    texts = [
        info.name,
        holder_of(info),
        *holders,
        *(one.rpartition("/")[0] for one in holders if "*" in wanted or "?" in wanted),
    ]
    if any(mark in wanted for mark in "*?["):
        return any(fnmatchcase(text, wanted) for text in texts)
    return any(wanted in text for text in texts)
