"""Throw-away etcd: one member or several that form a cluster, on loopback, ended with the process that started them."""

from __future__ import annotations

import contextlib
import shutil
import ssl
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.etcd_wire import EtcdError, EtcdWire
from tests.support.servers import Server, ServerNotInstalledError, free_port

__all__ = ["Etcd", "Member", "find_etcd"]

_MEMORY = Path("/dev/shm")
"""etcd writes to its disk at every change, and how slow a disk of tests is says nothing."""


def find_etcd() -> str:
    """The program.

    Raises:
        ServerNotInstalledError: It is not on this machine.
    """
    found = shutil.which("etcd")
    if found is None:
        raise ServerNotInstalledError("no etcd on PATH (apt-get install etcd-server)")
    return found


class Member(Server):
    """One member. It keeps its data over ``kill()`` and ``start()``; see ``Server`` for what else can be done to it."""

    def __init__(self, name: str, args: Sequence[str] = (), tls: Path | None = None) -> None:
        super().__init__(unix=False, persist=True, args=args, binary=find_etcd())
        self.name = name
        self._tls = tls
        self._port = free_port()
        self._peer_port = free_port()
        self._cluster = ""

    def __repr__(self) -> str:
        return f"<Member {self.name} of etcd, {self._port}>"

    @property
    def at(self) -> str:
        """Host and port for clients."""
        return f"{'127.0.0.1' if self._tls is None else 'localhost'}:{self.port}"

    @property
    def as_peer(self) -> str:
        """How the other members find it."""
        return f"{self.name}=http://127.0.0.1:{self._peer_port}"

    def wire(self, *, timeout: float = 10.0) -> EtcdWire:
        """A connection to this member alone."""
        host = self.at.partition(":")[0]
        tls = None if self._tls is None else ssl.create_default_context(cafile=str(self._tls / "cert.pem"))
        return EtcdWire(host, self.port, tls=tls, timeout=timeout)

    def healthy(self) -> bool:
        """Whether it answers as part of a cluster that has a leader."""
        with contextlib.suppress(OSError, ValueError, EtcdError), self.wire(timeout=1.0) as wire:
            return self.running and wire.healthy()
        return False

    def join(self, cluster: str) -> None:
        """Start as one of these members; wait for nothing but its port."""
        if self._folder is None:
            base = _MEMORY if _MEMORY.is_dir() else None
            self._folder = Path(tempfile.mkdtemp(prefix="pawlock-etcd-", dir=base))
        self._cluster = cluster
        self.start()

    def _program(self, binary: str, options: list[str]) -> list[str]:
        scheme, files = "http", list[str]()
        if self._tls is not None:
            scheme = "https"
            files = ["--cert-file", str(self._tls / "cert.pem"), "--key-file", str(self._tls / "key.pem")]
        clients, peers = f"{scheme}://{self.at}", f"http://127.0.0.1:{self._peer_port}"
        # It listens on addresses, not on names.
        listening = f"{scheme}://127.0.0.1:{self.port}"
        return [
            binary, "--name", self.name, "--data-dir", str(self.folder / "data"),
            "--listen-client-urls", listening, "--advertise-client-urls", clients,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", self._cluster, "--initial-cluster-token", self._cluster,
            "--logger", "zap", "--log-outputs", "stderr", "--log-level", "warn", *files, *self._args,
        ]  # fmt: skip

    def _answers(self, deadline: float) -> bool:
        # Of several members none is healthy before the second is there, and none at all while a majority is away.
        while self.running and time.monotonic() < deadline:
            with contextlib.suppress(OSError, EtcdError, ValueError), self.wire(timeout=1.0) as wire:
                wire.status()
                return True
            time.sleep(0.01)
        return False


class Etcd:
    """One member or a cluster, for the length of a ``with`` block.

    Args:
        members: How many.
        args: More arguments for the program, such as ``["--quota-backend-bytes", "1000000"]``.
        tls: A folder with ``key.pem`` and ``cert.pem`` that clients are spoken to with; None: no TLS.
    """

    def __init__(self, members: int = 1, *, args: Sequence[str] = (), tls: Path | None = None) -> None:
        self._tls = tls
        self.members = [Member(f"m{number}", args, tls) for number in range(1, members + 1)]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start all members that do not run, and wait until they work together.

        Raises:
            RuntimeError: They did not come up; the message ends with a log.
        """
        cluster = ",".join(member.as_peer for member in self.members)
        try:
            with ThreadPoolExecutor(len(self.members)) as pool:
                list(pool.map(lambda member: member.join(cluster), self.members))
            self.wait_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all members and remove their data."""
        for member in self.members:
            member.stop()

    @property
    def url(self) -> str:
        """The URL for ``pawlock.connect``, with all members."""
        return self.url_of(*self.members)

    def url_of(self, *members: Member, user: str = "") -> str:
        """The URL with some members only, and with ``user:password``."""
        hosts = ",".join(member.at for member in members)
        login = f"{user}@" if user else ""
        if self._tls is None:
            return f"etcd://{login}{hosts}"
        return f"etcds://{login}{hosts}?ssl_ca_certs={self._tls / 'cert.pem'}"

    def wire(self, *, timeout: float = 10.0) -> EtcdWire:
        """A connection to the first member that is healthy."""
        return next((m for m in self.members if m.healthy()), self.members[0]).wire(timeout=timeout)

    def wait_healthy(self, timeout: float = 30.0) -> None:
        """Wait until every member that runs takes part.

        Raises:
            RuntimeError: One does not; the message ends with its log.
        """
        end = time.monotonic() + timeout
        for member in self.members:
            while member.running and not member.healthy():
                if time.monotonic() > end:
                    raise RuntimeError(f"{member!r} is not healthy:\n{member.log[-2000:]}")
                time.sleep(0.02)

    def leader(self, timeout: float = 10.0) -> Member:
        """The member that leads.

        Raises:
            TimeoutError: There is none.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for member in self.members:
                with contextlib.suppress(OSError, EtcdError), member.wire(timeout=1.0) as wire:
                    said = wire.status()
                    if said.get("leader", "0") == said["header"]["member_id"]:
                        return member
            time.sleep(0.05)
        raise TimeoutError(f"no leader within {timeout:g} s")

    def followers(self) -> list[Member]:
        """All that run but the leader."""
        leader = self.leader()
        return [member for member in self.members if member is not leader and member.running]

    @contextlib.contextmanager
    def paused(self, *members: Member) -> Generator[None]:
        """Keep members frozen for the duration of a ``with`` block."""
        with contextlib.ExitStack() as stack:
            for member in members:
                stack.enter_context(member.paused())
            yield
