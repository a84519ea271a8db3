"""The servers of tests/contract/redlock."""

from tests.contract.redlock.conftest import five, own_five, own_three, shared_five

__all__ = ["five", "own_five", "own_three", "shared_five"]
