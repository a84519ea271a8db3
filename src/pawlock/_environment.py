"""What the environment says of a client's locks, as in ``PAWLOCK_TTL``."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pawlock._durations import HOW, seconds_of
from pawlock._hints import words_or_known
from pawlock.core.options import LockOptions
from pawlock.errors import ConfigurationError

__all__ = ["VARIABLES", "check_known", "from_environment", "this_user"]

VARIABLES: Mapping[str, str] = {
    option: f"PAWLOCK_{option.upper()}" for option in LockOptions.known("environment", client=True)
}
"""The variable of each option that has one."""


def _number(text: str, variable: str) -> float:
    found = seconds_of(text)
    if found < 0:
        raise ConfigurationError(f"{variable} must be {HOW}, got {text[:40]!r}")
    return found


def from_environment(given: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """What ``connect`` was given, with what the environment says of the rest.

    Args:
        given: The arguments; an argument wins.
        environ: The process's environment; an empty variable counts as none.

    Raises:
        ConfigurationError: A value that can never work; the text names the variable.
    """
    found: dict[str, Any] = {
        option: about["check"](_number(environ[VARIABLES[option]], VARIABLES[option]), VARIABLES[option])
        for option, about in LockOptions.known("environment", client=True).items()
        if option not in given and environ.get(VARIABLES[option])
    }
    if found:
        known = LockOptions.known(client=True)
        locks = {option: value for option, value in {**found, **given}.items() if option in known}
        try:
            LockOptions(**locks)
        except ConfigurationError as error:
            variables = ", ".join(VARIABLES[option] for option in found)
            raise ConfigurationError(f"{error.text} (set in the environment: {variables})") from None
    return {**found, **given}


def check_known(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse options that do not exist.

    Raises:
        ConfigurationError: There is one; it names pawlock's option for what other libraries call differently.
    """
    if unknown := sorted(set(given).difference(known)):
        raise ConfigurationError(f"unknown option {', '.join(unknown)}; {words_or_known(unknown, known)}")


def this_user() -> str:
    """Who runs this process, as ``user@host``: who called ``sudo``, else who is logged in."""
    import getpass

    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container may run as a number that has no name.
        user = f"uid-{os.getuid()}" if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"
