"""Throw-away groups of real servers: a master with replicas and Sentinels, and a cluster."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.resp import Argument, Reply, ReplyError, Wire
from tests.support.servers import Flavour, Server, free_port

__all__ = ["ClusterGroup", "SentinelGroup", "tls_args"]

SLOTS = 16384
_BUS_OFFSET = 10_000


def tls_args(folder: Path, port: int) -> list[str]:
    """What makes a server speak TLS at a port, with ``key.pem`` and ``cert.pem`` of a folder."""
    files = {"cert": "cert.pem", "key": "key.pem", "ca-cert": "cert.pem"}
    named = [arg for what, file in files.items() for arg in (f"--tls-{what}-file", str(folder / file))]
    return ["--tls-port", str(port), "--tls-auth-clients", "no", *named]


class _Sentinel(Server):
    """A server in Sentinel mode; it keeps what it learns in a file of its own."""

    def __init__(self, flavour: Flavour, settings: str, args: Sequence[str]) -> None:
        super().__init__(flavour, unix=False, args=args)
        self._settings = settings

    def _program(self, binary: str, options: list[str]) -> list[str]:
        file = self.folder / "sentinel.conf"
        if not file.exists():
            file.write_text(self._settings)
        folder = options[: options.index("--save")]
        port = ["--port", str(self.port), "--bind", "127.0.0.1"]
        return [binary, str(file), "--sentinel", *folder, *port, *self._args]


class _Group(ABC):
    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all servers and remove their folders."""
        self._stack.close()

    @abstractmethod
    def _start(self) -> None:
        """Start all servers and wait until they work together."""


class SentinelGroup(_Group):
    """A master, replicas and Sentinels on free ports of loopback, for the length of a ``with`` block.

    Args:
        flavour: Which program; see ``tests.support.servers.available``.
        replicas: How many replicas.
        sentinels: How many Sentinels; a majority of them decides a failover.
        password: What master and replicas ask for, or None.
        sentinel_password: What the Sentinels ask for, or None.
        tls: A folder with ``key.pem`` and ``cert.pem``: clients, servers and Sentinels speak TLS then, and each has a
            plain port for the test besides. None: no TLS.
    """

    service = "mymaster"

    def __init__(
        self,
        flavour: Flavour = "valkey",
        *,
        replicas: int = 1,
        sentinels: int = 3,
        password: str | None = None,
        sentinel_password: str | None = None,
        tls: Path | None = None,
    ) -> None:
        super().__init__()
        self._tls = tls
        self._tls_ports: dict[Server, int] = {}
        login = ["--requirepass", password, "--masterauth", password] if password else []
        args = ["--repl-diskless-sync-delay", "0", *login]
        self.servers: list[Server] = []
        for _ in range(replicas + 1):
            port, more = self._tls_args()
            self.servers.append(Server(flavour, unix=False, args=[*more, *args]))
            self._tls_ports[self.servers[-1]] = port
        self._flavour: Flavour = flavour
        self._password = password
        self._sentinel_password = sentinel_password
        self._count = sentinels
        self.sentinels: list[Server] = []

    @property
    def url(self) -> str:
        """The URL of the service, for ``pawlock.connect``."""
        login = f":{self._password}@" if self._password else ""
        hosts = ",".join(f"127.0.0.1:{self._port_of(sentinel)}" for sentinel in self.sentinels)
        scheme = "redis+sentinel" if self._tls is None else "rediss+sentinel"
        return f"{scheme}://{login}{hosts}/{self.service}"

    def _port_of(self, server: Server) -> int:
        """Where clients and the others reach it."""
        return server.port if self._tls is None else self._tls_ports[server]

    def _tls_args(self) -> tuple[int, list[str]]:
        if self._tls is None:
            return 0, []
        port = free_port()
        return port, [*tls_args(self._tls, port), "--tls-replication", "yes"]

    def ask(self, server: Server, *words: Argument) -> Reply:
        """Run a command on one of the servers, logged in."""
        login = self._password if server in self.servers else self._sentinel_password
        with Wire(server.address, timeout=10.0) as wire:
            if login:
                wire.command("AUTH", login)
            return wire.command(*words)

    @property
    def master(self) -> Server:
        """The server that most Sentinels take for the master."""
        votes = [self._master_of(sentinel) for sentinel in self.sentinels if sentinel.running]
        port = max(set(votes), key=votes.count)
        return next(server for server in self.servers if self._port_of(server) == port)

    @property
    def replicas(self) -> list[Server]:
        """The others."""
        master = self.master
        return [server for server in self.servers if server is not master]

    def wait_for_failover(self, old: Server, timeout: float = 20.0) -> Server:
        """Wait until another server than ``old`` is the master and takes writes.

        Returns:
            The new master.

        Raises:
            RuntimeError: It did not come about.
        """

        def moved() -> bool:
            master = self.master
            return master is not old and _text(_list(self.ask(master, "ROLE"))[0]) == "master"

        _until(moved, timeout, "a failover")
        return self.master

    def freeze_replication(self) -> None:
        """Cut the replicas off from the master: what is written from now on stays on the master alone."""
        master = self.master
        self.ask(master, "ACL", "SETUSER", "default", "-psync", "-sync", "-replconf")
        self.ask(master, "CLIENT", "KILL", "TYPE", "replica")

    def hide_master(self) -> Server:
        """Let the Sentinels take the master for dead, while it goes on serving clients and learns of no successor.

        Returns:
            It.
        """
        master = self.master
        self.ask(master, "ACL", "SETUSER", "default", "-ping", "-replicaof", "-slaveof")
        return master

    @contextmanager
    def stray(self, master: Server) -> Generator[Server]:
        """A Sentinel that knows none of the others and names this server, by a configuration newer than theirs."""
        lines = (f"monitor {self.service} 127.0.0.1 {master.port} 2", f"config-epoch {self.service} 99")
        with _Sentinel(self._flavour, "".join(f"sentinel {line}\n" for line in lines), []) as sentinel:
            yield sentinel

    def _start(self) -> None:
        for server in self.servers:
            self._stack.enter_context(server)
        master = self.servers[0]
        for server in self.servers[1:]:
            self.ask(server, "REPLICAOF", "127.0.0.1", str(self._port_of(master)))
        settings = [
            f"sentinel monitor {self.service} 127.0.0.1 {self._port_of(master)} {self._count // 2 + 1}",
            f"sentinel down-after-milliseconds {self.service} 500",
            f"sentinel failover-timeout {self.service} 3000",
            f"sentinel parallel-syncs {self.service} 5",
        ]
        if self._password:
            settings.append(f"sentinel auth-pass {self.service} {self._password}")
        text = "\n".join(settings) + "\n"
        for _ in range(self._count):
            args = ["--requirepass", self._sentinel_password] if self._sentinel_password else []
            port, more = self._tls_args()
            sentinel = _Sentinel(self._flavour, text, [*more, *args])
            self._tls_ports[sentinel] = port
            self.sentinels.append(self._stack.enter_context(sentinel))
        _until(self._ready, 20.0, "a group of Sentinels that know each other")

    def _ready(self) -> bool:
        for sentinel in self.sentinels:
            facts = _pairs(self.ask(sentinel, "SENTINEL", "MASTER", self.service))
            if facts.get("num-slaves") != str(len(self.servers) - 1):
                return False
            if facts.get("num-other-sentinels") != str(self._count - 1) or facts.get("flags") != "master":
                return False
        info = _text(self.ask(self.servers[0], "INFO", "replication"))
        return info.count("state=online") == len(self.servers) - 1

    def _master_of(self, sentinel: Server) -> int:
        found = _list(self.ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service))
        return int(_text(found[1])) if found else 0


class ClusterGroup(_Group):
    """A cluster on free ports of loopback, for the length of a ``with`` block.

    Args:
        flavour: Which program; see ``tests.support.servers.available``.
        masters: How many masters share the slots.
        replicas: How many replicas each of them has.
        node_timeout: Seconds of silence after which a node is taken for dead.
        tls: A folder with ``key.pem`` and ``cert.pem``: clients and nodes speak TLS then, and each node has a plain
            port for the test besides. None: no TLS.
    """

    def __init__(
        self,
        flavour: Flavour = "valkey",
        *,
        masters: int = 3,
        replicas: int = 0,
        node_timeout: float = 2.0,
        tls: Path | None = None,
    ) -> None:
        super().__init__()
        self._tls = tls
        self._tls_ports: list[int] = []
        self._masters = masters
        self._timeout = int(node_timeout * 1000)
        self._flavour: Flavour = flavour
        self._replicas = replicas
        self.nodes: list[Server] = []

    @property
    def url(self) -> str:
        """The URL of the cluster, for ``pawlock.connect``."""
        if self._tls is not None:
            return "rediss+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self._tls_ports)
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def owner(self, slot: int) -> Server:
        """The master that serves a slot, by what the running nodes say."""
        asked = next(node for node in self.nodes if node.running)
        for row in _rows(asked):
            if row.first <= slot <= row.last:
                return next(node for node in self.nodes if node.port == row.ports[0])
        raise RuntimeError(f"nobody serves slot {slot}")

    def slot_of(self, key: str) -> int:
        """The slot of a key, as the servers count it."""
        return _number(self.nodes[0].command("CLUSTER", "KEYSLOT", key))

    def node_id(self, node: Server) -> str:
        """The name that the cluster gives to a node."""
        return _text(node.command("CLUSTER", "MYID"))

    def begin_move(self, slot: int, source: Server, target: Server) -> None:
        """Begin to move a slot: from here on its keys may be in either place."""
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.node_id(source))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.node_id(target))

    def move_keys(self, slot: int, source: Server, target: Server) -> int:
        """Move all keys that a slot has; how many there were."""
        moved = 0
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            names = [_text(name) for name in _list(keys)]
            source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)
            moved += len(names)
        return moved

    def end_move(self, slot: int, source: Server, target: Server) -> None:
        """Give the slot to its new owner."""
        owner = self.node_id(target)
        for node in (target, source, *self.nodes):
            if node.running:
                with suppress(ReplyError):
                    node.command("CLUSTER", "SETSLOT", slot, "NODE", owner)

    def move(self, slot: int, source: Server, target: Server) -> None:
        """Move a slot as redis-cli does."""
        self.begin_move(slot, source, target)
        self.move_keys(slot, source, target)
        self.end_move(slot, source, target)

    def wait_until_whole(self, timeout: float = 30.0) -> None:
        """Wait until every running node says that all slots are served."""
        _until(self._whole, timeout, "a cluster that serves all slots")

    def _start(self) -> None:
        buses = [self._start_node() for _ in range(self._masters * (1 + self._replicas))]
        first, *others = self.nodes
        for number, node in enumerate(self.nodes):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in others:
            node.command("CLUSTER", "MEET", "127.0.0.1", str(first.port), str(buses[0]))
        _until(lambda: all(self._knows_all(node) for node in self.nodes), 20.0, "nodes that know each other")
        for number, (begin, end) in enumerate(_shares(self._masters)):
            self.nodes[number].command("CLUSTER", "ADDSLOTS", *range(begin, end + 1))
        for number, node in enumerate(self.nodes[self._masters :]):
            node.command("CLUSTER", "REPLICATE", self.node_id(self.nodes[number % self._masters]))
        self.wait_until_whole()

    def _start_node(self) -> int:
        """Start one more node; the port of its bus."""
        common = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(self._timeout)]
        args = [*common, "--repl-diskless-sync-delay", "0", *self._tls_args()]
        if self._flavour != "redis-6.2":
            bus = free_port()
            args = ["--cluster-port", str(bus), *args]
            self.nodes.append(self._stack.enter_context(Server(self._flavour, unix=False, args=args)))
            return bus
        node = self._stack.enter_context(Server(self._flavour, unix=False, args=args))
        self.nodes.append(node)
        return node.port + _BUS_OFFSET

    def _tls_args(self) -> list[str]:
        if self._tls is None:
            return []
        self._tls_ports.append(free_port())
        mine = tls_args(self._tls, self._tls_ports[-1])
        return [*mine, "--tls-cluster", "yes", "--tls-replication", "yes"]

    def _knows_all(self, node: Server) -> bool:
        return f"cluster_known_nodes:{len(self.nodes)}\r\n" in _text(node.command("CLUSTER", "INFO"))

    def _whole(self) -> bool:
        running = [node for node in self.nodes if node.running]
        for node in running:
            if "cluster_state:ok" not in _text(node.command("CLUSTER", "INFO")):
                return False
            rows = _rows(node)
            if sum(row.last - row.first + 1 for row in rows) != SLOTS:
                return False
            replicas = sum(len(row.ports) - 1 for row in rows)
            if replicas < self._replicas * len(rows) and len(running) == len(self.nodes):
                return False
        return True


class _Row(NamedTuple):
    """A range of slots, and the ports of who serves it: the master first."""

    first: int
    last: int
    ports: list[int]


def _rows(node: Server) -> list[_Row]:
    rows: list[_Row] = []
    for reply in _list(node.command("CLUSTER", "SLOTS")):
        first, last, *nodes = _list(reply)
        rows.append(_Row(_number(first), _number(last), [_number(_list(node)[1]) for node in nodes]))
    return rows


def _shares(masters: int) -> Iterator[tuple[int, int]]:
    for number in range(masters):
        yield SLOTS * number // masters, SLOTS * (number + 1) // masters - 1


def _list(reply: Reply) -> list[Reply]:
    return reply if isinstance(reply, list) else []


def _text(reply: Reply) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def _number(reply: Reply) -> int:
    return int(_text(reply))


def _pairs(reply: Reply) -> dict[str, str]:
    words = [_text(word) for word in _list(reply)]
    return dict(zip(words[::2], words[1::2], strict=False))


def _until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    end = time.monotonic() + timeout
    while True:
        with suppress(OSError, ReplyError):
            if condition():
                return
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not happen within {timeout:g} s")
        time.sleep(0.02)
