"""Keys that are shared with other programs: their texts, and the scripts for them."""

from __future__ import annotations

from typing import Any, cast

import pytest

import pawlock
from pawlock._inside import plan_behind
from pawlock.core.protocol.key_text import read_key
from pawlock.primitives import mutex
from pawlock.primitives.key import SCRIPTS
from tests.support.refusal import case


def test_a_key_as_text() -> None:
    cases: list[tuple[str, pawlock.Key]] = [
        ("order:42", pawlock.Key("order:42")),
        ("plain:redisson:n", pawlock.Key("redisson:n")),
        ("redisson:order:42", pawlock.Key.redisson("order:42")),
        ("redisson-fenced:n", pawlock.Key.redisson("n", fenced=True)),
        ("spring:locks:a:b", pawlock.Key.spring("locks", "a:b")),
        ("python-redis-lock:n", pawlock.Key.python_redis_lock("n")),
        ("rueidislock:n", pawlock.Key("rueidislock:0:n")),
        ("shedlock:n", pawlock.Key.shedlock("n")),
        ("redlock-net:n", pawlock.Key.redlock_net("n")),
        ("redis-semaphore:n", pawlock.Key.redis_semaphore("n")),
    ]
    for text, key in cases:
        with case(text, key):
            assert read_key(text) == key


def test_ordinary_scripts_know_nothing_of_it() -> None:
    for variants in SCRIPTS.values():
        for script in variants.values():
            assert b"read_window" in script.source or b"redisson" in script.source
    for name in vars(mutex):
        script = getattr(mutex, name)
        if type(script).__name__ == "Script":
            assert b"since" not in script.source
            assert b"--@" not in script.source


@pytest.mark.slow
def test_it_is_left_free_for_as_long_as_the_others_need() -> None:
    """Spring's spin lock polls every 100 ms, and would find a shorter time of 60 ms only now and then."""
    cases: list[tuple[pawlock.Key, dict[str, Any], str]] = [
        (pawlock.Key("k"), {}, "60"),
        (pawlock.Key.spring("locks", "k"), {}, "95"),
        (pawlock.Key.spring("locks", "k"), {"yield_for": 0.02}, "20"),
        (pawlock.Key.python_redis_lock("k"), {}, "60"),
    ]
    for key, options, yield_ms in cases:
        with case(key, options, yield_ms), pawlock.connect("redis://127.0.0.1:1") as client:
            plan = plan_behind(client.lock(key, **options))
            assert cast("Any", plan.primitive).shared.split()[:2] == ["250", yield_ms]
