"""What every guard does first: read the fencing token, and refuse one that cannot be used."""

from __future__ import annotations

from typing import Protocol

from pawlock.errors import ConfigurationError, StaleFence

__all__ = ["MOST", "Fenced", "fence_of", "name_of", "stale"]

MOST = 2**63 - 1
"""The largest fence: what a signed integer of 64 bits holds."""


class Fenced(Protocol):
    """Anything that carries a fencing token: a ``Lease`` or ``AsyncLease``."""

    @property
    def name(self) -> str:
        """The name that was locked."""
        ...

    @property
    def fence(self) -> int:
        """The number of the grant."""
        ...


def fence_of(lease: Fenced | int) -> int:
    """The fence to write under.

    Args:
        lease: A lease, or its fence where only the number came along, from another process, say.

    Returns:
        The fence, from 1 to 2**63 - 1.

    Raises:
        StaleFence: It is 0: the lease is degraded, made without the server, so it cannot be compared with others.
        ConfigurationError: It is no number of a grant.
    """
    fence: object = lease if isinstance(lease, int) else getattr(lease, "fence", None)
    if isinstance(fence, bool) or not isinstance(fence, int):
        kind = type(lease).__name__
        raise ConfigurationError(
            f"a guard needs a lease, or its fencing token as an int, got {kind} {lease!r:.40}"
        )
    if fence == 0:
        text = "fencing token 0 is refused: the lease was granted in degraded mode, without the server"
        raise StaleFence(text, name=name_of(lease), fence=0)
    if not 0 < fence <= MOST:
        raise ConfigurationError(f"a fencing token must be 1 to 2**63 - 1, got {fence}")
    return fence


def name_of(lease: Fenced | int) -> str | None:
    """The name of the lock, where a lease was given."""
    return None if isinstance(lease, int) else lease.name


def stale(what: str, lease: Fenced | int, seen: int) -> StaleFence:
    """The error of a guard that has seen a higher fence.

    Args:
        what: What refused, for the text.
        lease: What the writer came with.
        seen: The fencing token that is stored there.
    """
    fence = fence_of(lease)
    text = f"{what} was already written with fencing token {seen}, and {fence} is stale"
    return StaleFence(text, name=name_of(lease), fence=fence)
