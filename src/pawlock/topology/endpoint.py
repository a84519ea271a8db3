"""Where the nodes are and how to log in: plain records, made from a URL or taken from a client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pawlock.errors import ConfigurationError

__all__ = ["ClusterNodes", "Endpoint", "Masters", "Place", "Sentinels", "Target", "check_files"]


def check_files(settings: Mapping[str, Any]) -> None:
    """Refuse TLS options that name a file or folder which cannot be read: no later try would find it either.

    Raises:
        ConfigurationError: Which one, and why.
    """
    for option in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
        if path := settings.get(option):
            try:
                os.close(os.open(path, os.O_RDONLY))
            except OSError as error:
                text = f"{option} {str(path)!r} cannot be read: {error.strerror}"
                raise ConfigurationError(text) from None


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

    def at(self, host: str, port: int) -> Endpoint:
        """Another node that is reached in the same way."""
        shown_host = f"[{host}]" if ":" in host else host
        shown = f"{self.scheme}://{shown_host}:{port}/{self.settings.get('db', 0)}"
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

    @classmethod
    def of(cls, service: str, sentinels: Sequence[Endpoint], model: Endpoint) -> Sentinels:
        """Sentinels, and the service whose master is reached like the model."""
        places = [node.shown.split("/")[2] for node in sentinels]
        pairs = zip(sentinels, places, strict=True)
        nodes = tuple(replace(one, shown=f"sentinel {at}", mode="sentinel") for one, at in pairs)
        shown = f"{model.scheme}+sentinel://{','.join(places)}/{service}?db={model.settings.get('db', 0)}"
        return cls(service, nodes, replace(model, shown=shown, fixed=False), shown)


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """Nodes of a cluster, of which one must be there to list the others.

    Attributes:
        nodes: Their addresses.
        shown: The whole as it may be printed.
    """

    nodes: tuple[Endpoint, ...]
    shown: str

    @classmethod
    def of(cls, addresses: Iterable[tuple[str, int]], model: Endpoint) -> ClusterNodes:
        """Nodes that are reached like the model."""
        model = replace(model, mode="cluster", fixed=False)
        nodes = tuple(model.at(*address) for address in addresses)
        listed = ",".join(node.shown.split("/")[2] for node in nodes)
        return cls(nodes, f"{model.scheme}+cluster://{listed}")


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
    """Something that serves clients with runtimes of its own: ``pawlock.testing.Sim``, another engine.

    Attributes:
        shown: Its address.
        threads: Makes a runtime of threads from the prefix of wake-up channels.
        tasks: Makes a runtime of one event loop from the loop and that prefix.
        examine: Gives the reports of ``client.check()``.
        least_ttl: Seconds: of a lease, and of a waiter's ticket.
        lacks: The kinds that are not to be had there; ``"Key"``: keys of other libraries.
    """

    shown: str
    threads: Callable[[str], Any]
    tasks: Callable[[Any, str], Any]
    examine: Callable[[], list[Any]] = list
    least_ttl: float = 0.0
    lacks: frozenset[str] = frozenset()


Target: TypeAlias = "Callable[[], Endpoint] | Sentinels | ClusterNodes | Masters | Place"
"""What a client connects to: one server (asked for when it is needed), Sentinels, a cluster, or several masters."""
