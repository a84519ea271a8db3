"""Every primitive on every topology of every server that there is: what a full run of the conformance suite covers."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pawlock
from pawlock import embedded
from pawlock.primitives.registry import REGISTRY
from tests.conformance.suite import APIS, CHECKS, Api, Result, run
from tests.support.groups import ClusterGroup, SentinelGroup, tls_args
from tests.support.servers import Flavour, Server, find_binary, free_port

__all__ = [
    "ELSEWHERE",
    "QUORUM",
    "SERVERS",
    "TOPOLOGIES",
    "Place",
    "kinds_of",
    "play",
    "refused_on",
    "why_not",
]

SERVERS: tuple[Flavour, ...] = ("redis-6.2", "redis", "valkey-8", "valkey")
"""The oldest that is claimed, and those of today."""

QUORUM = {"fifo": False, "adopt": False}
"""What a majority of masters does not promise, though one server does."""

ELSEWHERE = {
    "its_family_keeps_it_out": "a hold of an owner is refused there",
    "inspect_tells_the_truth": "nobody queues, so nobody is shown waiting",
    "too_many_waiters_are_refused": "nobody queues",
    "one_who_gives_up_costs_the_others_nothing": "nobody has a place to lose",
}
"""Checks that ask for what several masters refuse, and why."""


@dataclass
class Place:
    """Where checks run: an address, the nodes behind it, and how clients are made."""

    url: str
    nodes: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    quorum: bool = False


@contextmanager
def single(flavour: Flavour) -> Generator[Place]:
    """One server."""
    with Server(flavour, unix=False) as server:
        yield Place(server.url)


@contextmanager
def tls(flavour: Flavour) -> Generator[Place]:
    """One server that is spoken to in TLS, verified against an authority of the test's own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tls_server(flavour, certificate(Path(folder))) as (url, server),
    ):
        yield Place(url, [server.url])


def certificate(folder: Path) -> Path:
    """A key and a certificate for localhost that signs itself."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return folder


@contextmanager
def tls_server(flavour: Flavour, folder: Path) -> Generator[tuple[str, Server]]:
    """A server with a TLS port beside its plain one, and the URL of the former."""
    port = free_port()
    with Server(flavour, unix=False, args=tls_args(folder, port)) as server:
        yield f"rediss://localhost:{port}/0?ssl_ca_certs={folder / 'cert.pem'}", server


@contextmanager
def sentinel(flavour: Flavour) -> Generator[Place]:
    """A master, a replica, three Sentinels."""
    with SentinelGroup(flavour) as group:
        yield Place(group.url, [group.master.url])


@contextmanager
def cluster(flavour: Flavour) -> Generator[Place]:
    """Three masters that share the slots."""
    with ClusterGroup(flavour) as group:
        yield Place(group.url, [node.url for node in group.nodes])


def redlock(count: int) -> Callable[[Flavour], Any]:
    """So many masters that share nothing."""

    @contextmanager
    def masters(flavour: Flavour) -> Generator[Place]:
        with ExitStack() as stack:
            nodes = [stack.enter_context(Server(flavour, unix=False)).url for _ in range(count)]
            listed = ",".join(node.removeprefix("redis://").removesuffix("/0") for node in nodes)
            yield Place(f"redlock://{listed}", nodes, {"redlock": pawlock.RedlockOptions(fresh=True)}, True)

    return masters


@contextmanager
def local(flavour: Flavour) -> Generator[Place]:
    """The server that pawlock starts by itself."""
    with tempfile.TemporaryDirectory() as folder:
        running = embedded.ensure(folder)
        try:
            yield Place(f"embedded://{folder}", [f"unix://{running.socket}?db=0"])
        finally:
            embedded.stop(folder)


TOPOLOGIES: dict[str, Callable[[Flavour], Any]] = {
    "single": single,
    "TLS": tls,
    "Sentinel": sentinel,
    "cluster": cluster,
    "Redlock 3": redlock(3),
    "Redlock 5": redlock(5),
    "embedded": local,
}


def why_not(topology: str, flavour: Flavour) -> str | None:
    """Why there is no such cell; None if there is."""
    if topology == "embedded":
        return None if flavour == "valkey" else "pawlock starts Valkey 9"
    if topology != "TLS":
        return None
    if shutil.which("openssl") is None:
        return "no openssl here"
    binary = find_binary(flavour)
    # A build without TLS says so before it opens a port.
    done = subprocess.run(
        [binary, "--port", "0", "--tls-port", "1", "--tls-cert-file", "/nowhere"],
        capture_output=True, text=True, check=False, timeout=10,
    )  # fmt: skip
    return "built without TLS" if not _speaks_tls(done.stdout + done.stderr) else None


def _speaks_tls(said: str) -> bool:
    return "Missing implement" not in said and "Bad directive" not in said


def refused_on(topology: str, kind: str) -> bool:
    """Whether a primitive is refused there."""
    return topology.startswith("Redlock") and not REGISTRY[kind].redlock


def kinds_of(topology: str) -> list[str]:
    """What runs there."""
    return [kind for kind in REGISTRY if not refused_on(topology, kind)]


def play(
    place: Place,
    kinds: list[str],
    apis: tuple[Api, ...] = APIS,
    parallel: int = 6,
    only: Iterable[str] = CHECKS,
) -> list[Result]:
    """Carry out every check that applies."""
    checks = [name for name in only if not (place.quorum and name in ELSEWHERE)]
    return run(
        place.url, kinds, apis,
        parallel=parallel, nodes=place.nodes, options=place.options, only=checks,
        traits=QUORUM if place.quorum else None,
    )  # fmt: skip
