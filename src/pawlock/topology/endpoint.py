"""Where the nodes are and how to log in: plain records, made from a URL or taken from a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from pawlock.errors import ConfigurationError

__all__ = ["ClusterNodes", "Endpoint", "Masters", "Place", "Sentinels", "Target", "check_files", "host_port"]

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_FOLDER = "ssl_ca_path"


def check_files(settings: Mapping[str, Any]) -> None:
    """Refuse TLS options that name a file or folder which cannot be read: no later try would find it either.

    Raises:
        ConfigurationError: Which one, and why.
    """
    for option in (*_FILES, _FOLDER):
        path = settings.get(option)
        if not path:
            continue
        try:
            if option == _FOLDER:
                next(Path(path).iterdir(), None)
            else:
                Path(path).open("rb").close()
        except OSError as error:
            text = f"{option} {str(path)!r} cannot be read: {error.strerror}"
            raise ConfigurationError(text) from None


def host_port(host: str, port: int) -> str:
    """A host and its port, as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one node.

    Attributes:
        scheme: ``redis``, ``rediss`` or ``unix``.
        shown: The address as it may be printed: without credentials.
        settings: What a connection of redis-py is made with: host, port, path, db, username, password, TLS.
        mode: What the node must say that it is: ``standalone`` or ``cluster``.
        fixed: Whether the address is all there is: a replica found there is a mistake, not a failover that passes.
    """

    scheme: str
    shown: str
    settings: Mapping[str, Any] = field(repr=False)
    mode: str = "standalone"
    fixed: bool = True

    @property
    def where(self) -> str:
        """Host and port, as they may be printed."""
        return self.shown.split("/")[2]

    def at(self, host: str, port: int) -> Endpoint:
        """Another node that is reached in the same way."""
        shown = f"{self.scheme}://{host_port(host, port)}/{self.settings.get('db', 0)}"
        return replace(self, shown=shown, settings={**self.settings, "host": host, "port": port})


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Sentinels, and the service whose master they know.

    Attributes:
        service: The name that the Sentinels give to the master and its replicas.
        sentinels: Their addresses.
        master: How a connection to the master is made; its address is what the Sentinels report.
        shown: The whole as it may be printed.
    """

    service: str
    sentinels: tuple[Endpoint, ...]
    master: Endpoint
    shown: str


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """Nodes of a cluster, of which one must be there to list the others.

    Attributes:
        nodes: Their addresses.
        shown: The whole as it may be printed.
    """

    nodes: tuple[Endpoint, ...]
    shown: str


@dataclass(frozen=True, slots=True)
class Masters:
    """Independent masters, a majority of which grants (Redlock).

    Attributes:
        nodes: Their addresses.
        shown: The whole as it may be printed.
    """

    nodes: tuple[Endpoint, ...]
    shown: str


@dataclass(frozen=True, slots=True)
class Place:
    """Something in this process that serves clients, as ``pawlock.testing.Sim`` does: it brings its own runtimes.

    Attributes:
        shown: Its address.
        threads: Makes a runtime of threads from the prefix of wake-up channels.
        tasks: Makes a runtime of one event loop from the loop and that prefix.
    """

    shown: str
    threads: Callable[[str], Any]
    tasks: Callable[[Any, str], Any]


Target: TypeAlias = "Callable[[], Endpoint] | Sentinels | ClusterNodes | Masters | Place"
"""What a client connects to: one server (asked for when it is needed), Sentinels, a cluster, or several masters."""
