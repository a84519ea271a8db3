"""Whoever did not acquire it cannot end it, prolong it, or pass it on: at random, over everything that is served."""

from collections.abc import Callable

import pytest


def test_whoever_did_not_acquire_it_cannot_end_it(attacked: Callable[..., None]) -> None:
    attacked(7, 300)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whoever_did_not_acquire_it_cannot_end_it_over_and_over(
    attacked: Callable[..., None], seed: int
) -> None:
    attacked(1000 + seed, 1500)
