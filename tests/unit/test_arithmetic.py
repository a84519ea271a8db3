"""Validity, drift, milliseconds and pauses: pure numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pawlock.core.options import DRIFT_FACTOR, DRIFT_FLOOR, drift, to_ms
from pawlock.core.records import valid_until
from pawlock.core.retry import full_jitter

LIVES = st.integers(min_value=0, max_value=400 * 86_400_000)
TIMES = st.floats(min_value=0.0, max_value=1e8)


def test_the_formula() -> None:
    assert drift(30.0) == pytest.approx(0.302)
    assert valid_until(1000.0, 30_000, 30_000) == pytest.approx(1029.698)
    assert (DRIFT_FACTOR, DRIFT_FLOOR) == (0.01, 0.002)


@given(TIMES, LIVES, LIVES)
def test_validity_never_outlives_the_server(sent_at: float, left_ms: int, asked_ms: int) -> None:
    until = valid_until(sent_at, left_ms, asked_ms)
    assert until < sent_at + left_ms / 1000 + 1e-9
    assert until < sent_at + asked_ms / 1000 + 1e-9
    assert valid_until(sent_at, asked_ms, left_ms) == until


@given(TIMES, LIVES, st.integers(min_value=0, max_value=10_000))
def test_more_life_is_never_less_validity(sent_at: float, left_ms: int, more: int) -> None:
    assert valid_until(sent_at, left_ms + more, 10**12) >= valid_until(sent_at, left_ms, 10**12)


@given(st.floats(min_value=0.05, max_value=366 * 86400.0))
def test_the_server_keeps_no_less_than_was_asked(seconds: float) -> None:
    assert seconds * 1000 - 1e-5 <= to_ms(seconds) < seconds * 1000 + 1


def test_whole_milliseconds_stay_whole() -> None:
    for number in range(1, 100_000, 7):
        assert to_ms(number / 1000) == number


@given(st.integers(min_value=0, max_value=10**6), st.floats(min_value=0.0, max_value=1.0, exclude_max=True))
def test_pauses_have_a_cap(attempt: int, random: float) -> None:
    assert 0.0 <= full_jitter(attempt, random) < 1.0
    assert full_jitter(attempt, random) <= 0.02 * 2**attempt if attempt < 50 else True


def test_pauses_grow() -> None:
    assert [full_jitter(attempt, 0.5) for attempt in (0, 1, 2, 3, 20)] == [0.01, 0.02, 0.04, 0.08, 0.5]
    assert full_jitter(3, 1.0, base=1.0, cap=5.0) == 5.0
    assert full_jitter(9, 0.0) == 0.0
