"""The throw-away server of a run, and what it counted."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.servers import Server

__all__ = ["Server", "Snapshot", "Stats", "traffic", "used_memory", "version"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The server's counters at one moment."""

    calls: dict[str, int]
    cpu: float

    @classmethod
    def of(cls, server: Server) -> Snapshot:
        """Ask the server."""
        calls: dict[str, int] = {}
        for key, value in _info(server, "commandstats").items():
            fields = dict(part.split("=", 1) for part in value.split(","))
            calls[key.removeprefix("cmdstat_").lower()] = int(fields["calls"])
        cpu = _info(server, "cpu")
        return cls(calls, float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]))


@dataclass(slots=True)
class Stats:
    """What happened on the server between two snapshots, summed over turns."""

    commands: int = 0
    cpu: float = 0.0

    def add(self, before: Snapshot, after: Snapshot, names: frozenset[str]) -> None:
        """Add one turn; only commands of these names count."""
        self.commands += sum(after.calls.get(name, 0) - before.calls.get(name, 0) for name in names)
        self.cpu += after.cpu - before.cpu


def traffic(server: Server) -> tuple[int, int]:
    """Return the bytes that the server has received and sent."""
    info = _info(server, "stats")
    return int(info["total_net_input_bytes"]), int(info["total_net_output_bytes"])


def used_memory(server: Server) -> int:
    """Return the bytes that the server's data and its clients take."""
    return int(_info(server, "memory")["used_memory"])


def version(server: Server) -> str:
    """Return the program and its version, for example `valkey 9.1.2`."""
    info = _info(server, "server")
    program = info.get("server_name", "redis")
    return f"{program} {info.get(f'{program}_version', info.get('redis_version', '?'))}"


def _info(server: Server, section: str) -> dict[str, str]:
    reply = server.command("INFO", section)
    text = reply.decode() if isinstance(reply, bytes) else str(reply)
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
