"""What is known of the server that pawlock brings along, and what the environment says of it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from pawlock._durations import HOW, seconds_of
from pawlock.errors import ConfigurationError, PawlockError

__all__ = ["EmbeddedServer", "EmbeddedStatus", "ServerInUse", "chosen_program", "idle_seconds"]

_IDLE_DEFAULT = 300.0


class ServerInUse(PawlockError):
    """The embedded server was not stopped, because clients are connected to it.

    Cause: your processes use it. Solution: stop them first, or stop the server by force: they will start it again.

    Attributes:
        clients: How many connections there were.
    """

    code = "SERVER_IN_USE"

    def __init__(self, message: str = "", name: str | None = None, clients: int = 0) -> None:
        super().__init__(message, name=name)
        self.clients = clients
        self._made_of(message, name, self.clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """A running embedded server.

    Attributes:
        socket: Path of its unix socket; the only way to reach it.
        pid: Its process id.
        state_dir: The folder with its data.
        started: True when this call started it, False when it ran already.
        binary: The server program.
    """

    socket: str
    pid: int
    state_dir: str
    started: bool
    binary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedStatus:
    """What is known about an embedded server without starting it.

    Attributes:
        running: Whether it runs and answers.
        state_dir: The folder with its data.
        socket: Path of its unix socket, or None when it does not run; so are all that follow.
        pid: Its process id.
        version: Product and version, such as "valkey 9.1.2".
        binary: The server program.
        clients: Connections to it, without our own.
    """

    running: bool
    state_dir: str
    socket: str | None = None
    pid: int | None = None
    version: str | None = None
    binary: str | None = None
    clients: int | None = None


def idle_seconds() -> float:
    """After how many seconds without clients the server exits; 0 or less for never.

    Raises:
        ConfigurationError: ``PAWLOCK_EMBEDDED_IDLE`` is no such number.
    """
    given = os.environ.get("PAWLOCK_EMBEDDED_IDLE")
    if not given:
        return _IDLE_DEFAULT
    seconds = seconds_of(given.removeprefix("-"))
    if seconds < 0:
        raise ConfigurationError(
            f"PAWLOCK_EMBEDDED_IDLE must be how long the server stays without clients ({HOW}), or 0 forever, got {given}"
        )
    return 0.0 if given.startswith("-") else seconds


def chosen_program() -> str | None:
    """Find the program that `$PAWLOCK_SERVER_BIN` names; None if it is not set.

    Raises:
        ConfigurationError: There is no such program.
    """
    chosen = os.environ.get("PAWLOCK_SERVER_BIN")
    if not chosen:
        return None
    found = shutil.which(os.path.expanduser(chosen))  # noqa: PTH111 - it leaves the home of an unknown user as it is
    if found is None:
        raise ConfigurationError(
            f"PAWLOCK_SERVER_BIN={chosen}: not an executable file; set the path of valkey-server or redis-server, "
            "or unset it"
        )
    return found
