"""Tests with a wall-clock bound that a busy machine can break: tried once more, counted, and limited in number."""

import pytest

__all__ = ["flaky"]


def flaky(reason: str) -> pytest.MarkDecorator:
    """Let a test be tried a second time.

    Args:
        reason: The bound that belongs to what is tested, and why it cannot be longer.
    """
    return pytest.mark.flaky(reruns=1, reason=reason)
