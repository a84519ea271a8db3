"""The calls about a namespace as a whole: its names, its audit log, and who of a process waits for what."""

from __future__ import annotations

from pawlock.core import outcomes
from pawlock.core.names import WIRE_VERSION, helper_key
from pawlock.core.runtime import Call
from pawlock.core.scripts import Replies, load
from pawlock.primitives.packing import helper, pack
from pawlock.primitives.replies import text, texts

__all__ = ["NamespaceKeys"]

_READ: Replies = {
    b"A": lambda fields: outcomes.Texts(fields[0], texts(fields[1])),
    b"N": lambda fields: outcomes.Noted(fields[0]),
    b"K": lambda fields: outcomes.Keys(text(fields[0]), fields[1], texts(fields[2])),
}

_SCAN = load(__name__, "scan", read=_READ)
_NOTE = load(__name__, "note", read=_READ)
_LINES = load(__name__, "lines", read=_READ)
_WAITS = load(__name__, "waits", read=_READ)
_WAITING = load(__name__, "waiting", read=_READ)

_RECORD_LIFE_MS = 15_000
"""Life of the record of a client's waiters: that of a client that dies counts for no longer."""


class NamespaceKeys:
    """The calls of one namespace. Immutable; shared by all threads and tasks.

    Args:
        namespace: The namespace as keys begin with it; ``""``: names are keys.
    """

    __slots__ = ("_audit", "_namespace", "_root", "_waits")

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        # No namespace holds a colon, so the empty one meets no other.
        self._root = namespace or "pawlock:"
        self._audit = helper(self._root, "audit")
        self._waits = helper_key(self._root, f"{WIRE_VERSION}:waits:")

    def note(self, line: str, data: str, limit: int, life_ms: int) -> Call:
        """Write a line into the audit log; see ``note.lua``."""
        return Call(_NOTE, self._audit + pack(line, data, limit, life_ms))

    def audit_log(self, limit: int) -> Call:
        """Read the audit log; see ``lines.lua``."""
        return Call(_LINES, self._audit + pack(limit))

    def write_waits(self, process: str, client: str, record: str, channel: str = "", token: str = "") -> Call:
        """Write what the waiters of a client wait for; see ``waits.lua``."""
        words = pack(client, record, _RECORD_LIFE_MS, channel, token)
        return Call(_WAITS, pack(self._waits + process) + words)

    def read_waits(self, process: str) -> Call:
        """Read what the clients of a process wait for; see ``waiting.lua``."""
        return Call(_WAITING, pack(self._waits + process, _RECORD_LIFE_MS))

    def scan_key(self, number: int) -> str:
        """A key of a node; an ACL for the namespace allows it."""
        return helper_key(f"{self._root}:{number}", "scan")

    def scan(self, node: str, cursor: str, count: int, *, everywhere: bool) -> Call:
        """Look at the next keys of the node that serves the key ``node``; see ``scan.lua``.

        The names of a namespace are found by what they are held by. Without one, any key may be a name: those are
        found by their fences, which also stand for names that were held within the last hour.
        """
        pattern = "*:fence"
        if self._namespace and not everywhere:
            pattern = "*" + self._namespace.replace("\\", "\\\\") + ":*"
        return Call(_SCAN, pack(node, cursor, pattern, count))
