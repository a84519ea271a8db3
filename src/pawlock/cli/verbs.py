"""The verbs of the command. Imports nothing, so that `pawlock --help` costs little more than Python itself."""

from __future__ import annotations

__all__ = ["VERBS", "overview"]

VERBS = {
    "doctor": "Check a server for settings that break locks.",
    "force-release": "End the lease of another client.",
    "ls": "List all held locks.",
    "once": "Run a command once, and tell later callers its exit code.",
    "run": "Run a command while holding a lock, or leading.",
    "serve": "Serve locks over HTTP.",
    "server": "Start, stop and inspect the embedded server.",
    "show": "Show one lock: holder, queue, audit log.",
    "top": "Show held locks live.",
}
"""What each verb does; a verb is a function in a module of the same name, with an underscore for a hyphen."""

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
    return _OVERVIEW.format("\n".join(f"  {name:<{width}}{VERBS[name]}" for name in sorted(VERBS)))
