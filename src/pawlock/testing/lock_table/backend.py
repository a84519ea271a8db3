"""What the conformance suite does to a lock table behind its clients' backs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from tests.conformance.suite.backend import CannotShowError, Faulty

if TYPE_CHECKING:
    from pawlock.testing.lock_table.node import TableNode
    from tests.support._rules import Request

__all__ = ["TableBackend"]


class TableBackend:
    """See ``Backend``.

    Args:
        node: The table.
        way: Makes a way to it on which things go wrong.
    """

    def __init__(self, node: TableNode, way: Callable[[], Faulty]) -> None:
        self._node = node
        self._way = way

    def faulty(self) -> Faulty:
        """See ``Backend``."""
        return self._way()

    def is_about(self, request: Request, namespace: str) -> bool:
        """See ``Backend``: whatever is asked names its key."""
        return request.contains(namespace)

    def stored(self, namespace: str) -> list[str]:
        """See ``Backend``: each part of each name, as long as it is not over."""
        return sorted(self._node.seen(namespace))

    def picture(self, namespace: str) -> Mapping[str, Any]:
        """See ``Backend``: an end that moved is a change."""
        return self._node.seen(namespace)

    def without_ttl(self, namespace: str) -> list[str]:
        """See ``Backend``."""
        return sorted(part for part, until_ms in self._node.seen(namespace).items() if until_ms in (0, inf))

    def wipe(self, namespace: str) -> None:
        """See ``Backend``."""
        self._node.forget(namespace)

    def forget_scripts(self) -> None:
        """See ``Backend``."""
        raise CannotShowError("a lock table has no scripts")

    def close(self) -> None:
        """See ``Backend``: the table is its owner's."""
