"""The verbs of the command. Imports nothing, so that `pawl --help` costs little more than Python itself."""

from __future__ import annotations

__all__ = ["VERBS", "overview"]

VERBS = {
    "acquire": ("pawl.cli.acquire", "acquire", "Acquire a lock in a script, and print a ticket for it."),
    "audit": ("pawl.cli.audit", "audit", "Show the audit log."),
    "bench": ("pawl.cli.bench", "bench", "Measure the latency of locks on a server."),
    "completion": ("pawl.cli.completion", "completion", "Print a shell completion script."),
    "doctor": ("pawl.cli.doctor", "doctor", "Check a server for settings that break locks."),
    "elect": ("pawl.cli.elect", "elect", "Run a command while this host is the leader."),
    "force-release": ("pawl.cli.force_release", "force_release", "End the lease of another client."),
    "grafana": ("pawl.cli.grafana", "grafana", "Print the Grafana dashboard or the alert rules."),
    "ls": ("pawl.cli.ls", "ls", "List all held locks."),
    "once": ("pawl.cli.once", "once", "Run a command once, and replay its output and exit code."),
    "release": ("pawl.cli.release", "release", "Release a lock that `acquire` acquired."),
    "renew": ("pawl.cli.renew", "renew", "Extend a lock that `acquire` acquired."),
    "run": ("pawl.cli.run", "run", "Run a command while holding a lock."),
    "serve": ("pawl.cli.serve", "serve", "Serve locks over HTTP."),
    "server": ("pawl.cli.server", "server", "Start, stop and inspect the embedded server."),
    "show": ("pawl.cli.show", "show", "Show one lock: holder, queue, history, audit log."),
    "top": ("pawl.cli.top", "top", "Show held locks live."),
    "watch": ("pawl.cli.watch", "watch", "Print a line whenever a lock changes hands."),
}
"""Module, attribute and what it is for, by verb."""

_OVERVIEW = """\
Usage: pawl [OPTIONS] COMMAND [ARGS]...

  Distributed locks on Redis and Valkey.

Options:
  --url URL         Server URL (default: PAWL_URL, else the embedded server).
  --namespace TEXT  Key prefix of the locks (default: pawl).
  --version         Show the version and exit.
  -h, --help        Show this message and exit.

Commands:
{}

  `pawl COMMAND --help` explains a command, with examples. --url and --namespace
  may come before or after the command. Without --url and PAWL_URL, pawl starts
  an embedded server for this machine on demand.
"""


def overview() -> str:
    """What `pawl --help` prints."""
    width = max(map(len, VERBS)) + 2
    return _OVERVIEW.format("\n".join(f"  {name:<{width}}{VERBS[name][2]}" for name in sorted(VERBS)))
