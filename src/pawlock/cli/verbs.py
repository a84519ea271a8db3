"""The verbs of the command. Imports nothing, so that `pawlock --help` costs little more than Python itself."""

from __future__ import annotations

__all__ = ["VERBS", "overview"]

VERBS = {
    "acquire": ("pawlock.cli.acquire", "acquire", "Acquire a lock in a script, and print a ticket for it."),
    "audit": ("pawlock.cli.audit", "audit", "Show the audit log."),
    "bench": ("pawlock.cli.bench", "bench", "Measure the latency of locks on a server."),
    "completion": ("pawlock.cli.completion", "completion", "Print a shell completion script."),
    "doctor": ("pawlock.cli.doctor", "doctor", "Check a server for settings that break locks."),
    "elect": ("pawlock.cli.elect", "elect", "Run a command while this host is the leader."),
    "force-release": ("pawlock.cli.force_release", "force_release", "End the lease of another client."),
    "grafana": ("pawlock.cli.grafana", "grafana", "Print the Grafana dashboard or the alert rules."),
    "ls": ("pawlock.cli.ls", "ls", "List all held locks."),
    "once": ("pawlock.cli.once", "once", "Run a command once, and replay its output and exit code."),
    "release": ("pawlock.cli.release", "release", "Release a lock that `acquire` acquired."),
    "renew": ("pawlock.cli.renew", "renew", "Extend a lock that `acquire` acquired."),
    "run": ("pawlock.cli.run", "run", "Run a command while holding a lock."),
    "serve": ("pawlock.cli.serve", "serve", "Serve locks over HTTP."),
    "server": ("pawlock.cli.server", "server", "Start, stop and inspect the embedded server."),
    "show": ("pawlock.cli.show", "show", "Show one lock: holder, queue, audit log."),
    "top": ("pawlock.cli.top", "top", "Show held locks live."),
    "watch": ("pawlock.cli.watch", "watch", "Print a line whenever a lock changes hands."),
}
"""Module, attribute and what it is for, by verb."""

_OVERVIEW = """\
Usage: pawlock [OPTIONS] COMMAND [ARGS]...

  Distributed locks on Redis and Valkey.

Options:
  --url URL         Server URL (default: PAWLOCK_URL, else the embedded server).
  --namespace TEXT  Key prefix of the locks (default: pawlock).
  --version         Show the version and exit.
  -h, --help        Show this message and exit.

Commands:
{}

  `pawlock COMMAND --help` explains a command, with examples. --url and --namespace
  may come before or after the command. Without --url and PAWLOCK_URL, pawlock starts
  an embedded server for this machine on demand.
"""


def overview() -> str:
    """What `pawlock --help` prints."""
    width = max(map(len, VERBS)) + 2
    return _OVERVIEW.format("\n".join(f"  {name:<{width}}{VERBS[name][2]}" for name in sorted(VERBS)))
