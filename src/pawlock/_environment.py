"""The options of a client as the environment gives them: most have a variable, ``PAWLOCK_`` and its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pawlock._hints import words_for
from pawlock.core.protocol.options import (
    LockOptions,
    check_deadlock_after,
    check_fence_ttl,
    check_timeout,
    check_ttl,
)
from pawlock.errors import ConfigurationError

__all__ = ["VARIABLES", "from_environment", "unknown_options"]

_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _number(text: str, variable: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{variable} must be a number of seconds, got {text[:40]!r}") from None


def _count(text: str, variable: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{variable} must be a whole number, got {text[:40]!r}") from None


def _switch(text: str, variable: str) -> bool:
    if text.lower() not in _WORDS:
        raise ConfigurationError(f"{variable} must be 1 or 0, got {text[:40]!r}")
    return _WORDS[text.lower()]


def _word(text: str, variable: str) -> str:  # noqa: ARG001 - as the others
    return text


_READ: Mapping[str, Callable[[str, str], Any]] = {
    "ttl": lambda text, variable: check_ttl(_number(text, variable), variable),
    "timeout": lambda text, variable: check_timeout(_number(text, variable), variable),
    "unavailable_after": _number,
    "max_hold": _number,
    "min_hold": _number,
    "handover": _count,
    "ticket_ttl": _number,
    "max_waiters": _count,
    "fence_ttl": lambda text, variable: check_fence_ttl(_number(text, variable), variable),
    "replicas": _count,
    "on_exit": _word,
    "on_unavailable": _word,
    "deadlock_after": lambda text, variable: check_deadlock_after(_number(text, variable), variable),
    "strict": _switch,
}

VARIABLES: Mapping[str, str] = {option: f"PAWLOCK_{option.upper()}" for option in _READ}
"""The variable of each option. Callbacks and ``renew`` have none."""

_BESIDE = {"ticket_ttl": "ttl"}
"""Variables that another argument also overrides: a ttl implies that of tickets."""


def from_environment(given: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """What ``connect`` was given, with what the environment says of the rest.

    Args:
        given: The arguments; an argument wins.
        environ: The process's environment; an empty variable counts as none.

    Raises:
        ConfigurationError: A value that can never work; the text names the variable.
    """
    found: dict[str, Any] = {
        option: _READ[option](environ[variable], variable)
        for option, variable in VARIABLES.items()
        if option not in given and _BESIDE.get(option) not in given and environ.get(variable)
    }
    if found:
        locks = {
            option: value for option, value in {**found, **given}.items() if option in LockOptions.known()
        }
        try:
            LockOptions(**locks)
        except ConfigurationError as error:
            variables = ", ".join(VARIABLES[option] for option in found)
            raise ConfigurationError(f"{error.text} (set in the environment: {variables})") from None
    return {**found, **given}


def unknown_options(unknown: list[str], known: frozenset[str]) -> ConfigurationError:
    """The error for options that do not exist; it names pawlock's option for what other libraries call differently."""
    text = f"unknown option {', '.join(unknown)}; known: {', '.join(sorted(known))}"
    return ConfigurationError("; ".join([text, *words_for(unknown)]))
