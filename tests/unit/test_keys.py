"""Keys that are shared with other programs: their texts, and the scripts for them."""

from __future__ import annotations

import pawlock
from pawlock._key_text import read_key
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
