"""The verbs of the command. Imports nothing, so that `pawl --help` costs little more than Python itself."""

from __future__ import annotations

__all__ = ["VERBS", "overview"]

VERBS = {
    "acquire": ("pawl.cli.acquire", "acquire", "Take a lock in a script, and print a ticket for it."),
    "audit": ("pawl.cli.audit", "audit", "Show what operators did."),
    "bench": ("pawl.cli.bench", "bench", "Measure how fast a server locks."),
    "completion": ("pawl.cli.completion", "completion", "Print a script that completes `pawl` in a shell."),
    "doctor": ("pawl.cli.doctor", "doctor", "Look at a server for what would break a lock's promises."),
    "elect": ("pawl.cli.elect", "elect", "Run a command while leading an election, again and again."),
    "force-release": ("pawl.cli.force_release", "force_release", "Take a lock from whoever holds it."),
    "grafana": ("pawl.cli.grafana", "grafana", "Print the dashboard for Grafana, or the alert rules."),
    "ls": ("pawl.cli.ls", "ls", "List all held names."),
    "release": ("pawl.cli.release", "release", "Give back what `acquire` took."),
    "run": ("pawl.cli.run", "run", "Run a command while holding a lock."),
    "serve": ("pawl.cli.serve", "serve", "Serve locks over HTTP."),
    "server": ("pawl.cli.server", "server", "Start, stop and look at the embedded server of this machine."),
    "show": ("pawl.cli.show", "show", "Show one name: its holder, its queue, what operators did."),
    "top": ("pawl.cli.top", "top", "Show held names live."),
    "watch": ("pawl.cli.watch", "watch", "Print a line whenever a name changes hands."),
}
"""Module, attribute and what it is for, by verb."""

_OVERVIEW = """\
Usage: pawl [OPTIONS] COMMAND [ARGS]...

  Distributed locks on Redis and Valkey.

Options:
  --url URL         The server, for any command.
  --namespace TEXT  What the keys of the locks begin with, for any command (pawl).
  --version         Show it and exit.
  -h, --help        Show this message and exit.

Commands:
{}

  `pawl COMMAND --help` explains a command with examples. Which server: --url,
  before or behind the command, else PAWL_URL, else one for this machine, started
  when it is needed.
"""


def overview() -> str:
    """What `pawl --help` prints."""
    width = max(map(len, VERBS)) + 2
    return _OVERVIEW.format("\n".join(f"  {name:<{width}}{VERBS[name][2]}" for name in sorted(VERBS)))
