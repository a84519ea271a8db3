"""What a server has counted of the commands that track keys."""

from __future__ import annotations

import re

from tests.support.servers import Server


def count(server: Server, command: str, what: str = "calls") -> int:
    """How often a command was carried out, or refused, since the last reset."""
    stats = server.command("INFO", "commandstats")
    assert isinstance(stats, bytes)
    found = re.search(rf"cmdstat_{re.escape(command)}:calls=(\d+),.*?rejected_calls=(\d+)", stats.decode())
    return 0 if found is None else int(found[1 if what == "calls" else 2])
