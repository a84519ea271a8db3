"""What a check does to etcd behind the clients' backs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.suite.backend import CannotShowError, Faulty
from tests.support._rules import Request
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import EtcdProxy
from tests.support.etcd_wire import Pair

__all__ = ["EtcdBackend"]

TOMBSTONE = b"\x01"
"""Begins, in a key, what is no holder or waiter of a name."""


class EtcdBackend:
    """See ``Backend``. The server is asked over a connection for each call: checks run at one time, in threads.

    Args:
        etcd: One member or several; the first is the one that a faulty way leads to.
    """

    shortest = 2.0
    # An end is looked for every half second, and then agreed upon.
    slack = 2.0

    def __init__(self, etcd: Etcd) -> None:
        self._member = etcd.members[0]

    def faulty(self) -> Faulty:
        """See ``Backend``: before one member, which is all that a client behind it knows."""
        return EtcdProxy(self._member).start()

    def is_about(self, request: Request, namespace: str) -> bool:
        """See ``Backend``: it names one of its keys, and is no watch, whose answer never ends."""
        return request.command != "WATCH" and request.contains(namespace)

    def stored(self, namespace: str) -> list[str]:
        """See ``Backend``: a key for each holder and waiter."""
        return [pair.key.decode() for pair in self._found(namespace) if TOMBSTONE not in pair.key]

    def picture(self, namespace: str) -> Mapping[str, Any]:
        """See ``Backend``."""
        return {
            pair.key.decode(): (pair.mod_revision, pair.value)
            for pair in self._found(namespace)
            if TOMBSTONE not in pair.key
        }

    def queued(self, namespace: str) -> frozenset[object]:
        """See ``Backend``: holders too, who are the first of a queue."""
        return frozenset(self.stored(namespace))

    def without_ttl(self, namespace: str) -> list[str]:
        """See ``Backend``: what hangs on no lease."""
        return [pair.key.decode() for pair in self._found(namespace) if not pair.lease]

    def wipe(self, namespace: str) -> None:
        """See ``Backend``."""
        with self._member.wire() as wire:
            for pair in self._found(namespace):
                wire.delete(pair.key, exact=True)

    def forget_scripts(self) -> None:
        """See ``Backend``.

        Raises:
            CannotShowError: There are none.
        """
        raise CannotShowError

    def uptime(self) -> int:
        """See ``Backend``: what is asked for is how long it has kept all that it knew, over restarts too."""
        return 3600

    def close(self) -> None:
        """See ``Backend``."""

    def _found(self, namespace: str) -> list[Pair]:
        with self._member.wire() as wire:
            return [pair for pair in wire.range() if namespace.encode() in pair.key]
