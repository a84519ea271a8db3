"""The server that pawlock brings along: one per user and machine, started when it is first needed.

Any number of processes of the user find the same server through its state folder. It keeps its data in
memory alone, and exits by itself when nobody has used it for some minutes (`$PAWLOCK_EMBEDDED_IDLE`
seconds, 300 unless set, 0 for never); the next process starts it again.

It is for one machine: two hosts that both use an embedded server do not exclude each other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pawlock.embedded._model import EmbeddedServer, EmbeddedStatus, ServerInUse, chosen_program, idle_seconds
from pawlock.errors import ConfigurationError

__all__ = [
    "EmbeddedServer",
    "EmbeddedStatus",
    "ServerInUse",
    "check_settings",
    "ensure",
    "refuse_reason",
    "status",
    "stop",
]

_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
_CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "container")
_FUNCTION_VARIABLES = ("AWS_LAMBDA_FUNCTION_NAME", "FUNCTION_TARGET", "K_SERVICE", "FUNCTIONS_WORKER_RUNTIME")


def ensure(state_dir: str | os.PathLike[str] | None = None, *, timeout: float = 10.0) -> EmbeddedServer:
    """Start the user's server, or join the one that runs.

    Safe to call from any number of processes and threads at once: they all get the same server. A server that
    crashed is started again, empty: holders find that their leases are lost, and fences go on from the clock.
    When it is stopped between this call and your first connection, that connection fails: call `ensure` again.

    Args:
        state_dir: Folder for its socket and log. None (default): `$PAWLOCK_STATE_DIR`, else `pawlock` in
            `$XDG_STATE_HOME`, else `~/.local/state/pawlock`. Made with mode 0700 when missing.
        timeout: Seconds to wait for the server to come up, or for another process that is starting it.

    Returns:
        Where the server is.

    Raises:
        ConfigurationError: no server program is installed, the one found is older than 6.2, the folder
            belongs to somebody else or others may write to it, or the system is not POSIX.
        BackendUnavailable: the server did not come up in time, or runs and does not answer.
    """
    from pawlock.embedded import _server

    return _server.ensure(_state_dir(state_dir), timeout)


def stop(state_dir: str | os.PathLike[str] | None = None, *, force: bool = False) -> bool:
    """Stop the server. Its data go with it.

    Args:
        state_dir: As for `ensure`.
        force: Stop it although clients are connected, and end it when it does not answer.

    Returns:
        True when it was stopped, False when none was running.

    Raises:
        ServerInUse: clients are connected, and `force` is False.
        ConfigurationError: as for `ensure`, but for the server program.
        BackendUnavailable: it does not answer, or does not end.
    """
    from pawlock.embedded import _server

    return _server.stop(_state_dir(state_dir), force=force)


def status(state_dir: str | os.PathLike[str] | None = None) -> EmbeddedStatus:
    """Look at the server without starting it, and without making its folder.

    Args:
        state_dir: As for `ensure`.

    Returns:
        What is known of it; `running` is False when there is none.

    Raises:
        ConfigurationError: as for `ensure`, but for the server program.
        BackendUnavailable: it runs and does not answer within 5 s.
    """
    from pawlock.embedded import _server

    return _server.status(_state_dir(state_dir))


def refuse_reason(environ: Mapping[str, str]) -> str | None:
    """Say why an embedded server would be wrong here when nobody asked for it.

    In a container or a function runtime each instance would get a server of its own, so that locks would
    exclude nobody, silently. Asking for `embedded://` by name is always allowed.

    Args:
        environ: The environment to check, usually `os.environ`.

    Returns:
        The reason as a clause, such as "this is a container (/.dockerenv exists)"; None if there is
        none.
    """
    if environ.get("PAWLOCK_REQUIRE_URL", "").strip().lower() not in {"", "0", "no", "false", "off"}:
        return "PAWLOCK_REQUIRE_URL is set"
    for variable in _FUNCTION_VARIABLES:
        if environ.get(variable):
            return f"this is a function runtime ({variable} is set)"
    for variable in _CONTAINER_VARIABLES:
        if environ.get(variable):
            return f"this is a container ({variable} is set)"
    for path in _CONTAINER_FILES:
        if Path(path).exists():
            return f"this is a container ({path} exists)"
    return None


def check_settings(state_dir: str | os.PathLike[str] | None = None) -> None:
    """Refuse at once what `ensure` would refuse once the server is needed; nothing is started or made.

    Args:
        state_dir: As for `ensure`.

    Raises:
        ConfigurationError: `$PAWLOCK_EMBEDDED_IDLE`, `$PAWLOCK_SERVER_BIN` or the state folder cannot work.
    """
    idle_seconds()
    chosen_program()
    state = _state_dir(state_dir)
    there = next(path for path in (state, *state.parents) if os.path.exists(path))  # noqa: PTH110 - it raises nothing
    if not there.is_dir():
        raise ConfigurationError(
            f"{state}: {there} is not a folder; set PAWLOCK_STATE_DIR to a folder that only you can write to"
        )


def _state_dir(given: str | os.PathLike[str] | None) -> Path:
    if os.name != "posix":
        raise ConfigurationError(
            "the embedded server needs a POSIX system: set PAWLOCK_URL to that of a server"
        )
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = given or os.environ.get("PAWLOCK_STATE_DIR") or f"{state}/pawlock"
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigurationError(
            f"{folder}: there is no such home directory; set PAWLOCK_STATE_DIR to the path of a folder"
        ) from error
