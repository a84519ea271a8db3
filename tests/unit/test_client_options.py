"""Every option of a lock is one of its client, too, sync and async; four have a variable in the environment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

import pawlock
from pawlock.core.options import LockOptions
from tests.support.refusal import case

URL = "redis://127.0.0.1:1"  # nothing is sent
CONNECTS: tuple[Callable[..., Any], ...] = (pawlock.connect, pawlock.connect_async)


def told(lease: object) -> None:
    """A callback."""


VALUES: dict[str, Any] = {
    "ttl": 21.0,
    "renew": 3.5,
    "timeout": 4.5,
    "unavailable_after": 1.5,
    "max_hold": 77.0,
    "min_hold": 0.5,
    "handover": 3,
    "ticket_ttl": 2.5,
    "max_waiters": 12,
    "replicas": 2,
    "on_lost": told,
    "on_exit": "warn",
    "on_unavailable": "local",
}
FOR_FAR_SERVERS: dict[str, Any] = {"request_timeout": 4.0, "connect_timeout": 6.5}
WITH_VARIABLE = ("ttl", "timeout", *FOR_FAR_SERVERS)


def options_of(client: pawlock.Client | pawlock.AsyncClient) -> LockOptions:
    return client.lock("n")._plan.options


def test_every_option_is_tried() -> None:
    assert set(VALUES) == set(LockOptions.known())
    assert all(value != getattr(LockOptions(), name) for name, value in VALUES.items())


def test_an_option_of_the_client_is_the_default_of_its_locks() -> None:
    for connect, (name, value) in product(CONNECTS, {**VALUES, **FOR_FAR_SERVERS}.items()):
        with case(connect, name):
            client = connect(URL, **{name: value})
            assert getattr(options_of(client), name) == value
            assert getattr(options_of(client), name) != getattr(options_of(connect(URL)), name)


def test_its_variable_does_the_same_and_an_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for connect, name in product(CONNECTS, WITH_VARIABLE):
        with case(connect, name), monkeypatch.context() as environment:
            value = {**VALUES, **FOR_FAR_SERVERS}[name]
            environment.setenv(f"PAWLOCK_{name.upper()}", str(value))
            assert getattr(options_of(connect(URL)), name) == value
            default = getattr(LockOptions(), name)
            if default is not None:
                assert getattr(options_of(connect(URL, **{name: default})), name) == default


def test_a_variable_that_can_never_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for connect, name in product(CONNECTS, WITH_VARIABLE):
        with case(connect, name), monkeypatch.context() as environment:
            environment.setenv(f"PAWLOCK_{name.upper()}", "-7x")
            with pytest.raises(pawlock.ConfigurationError, match=f"PAWLOCK_{name.upper()}"):
                connect(URL)


def test_nothing_else_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RENEW", "HANDOVER", "FENCE_TTL", "DEADLOCK_AFTER", "ON_EXIT", "UNAVAILABLE_AFTER"):
        monkeypatch.setenv(f"PAWLOCK_{name}", "not read")
    for connect in CONNECTS:
        assert options_of(connect(URL)) == LockOptions()


def test_an_argument_that_does_not_fit_a_variable_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_TTL", "2")
    for connect in CONNECTS:
        with pytest.raises(pawlock.ConfigurationError, match="PAWLOCK_TTL"):
            connect(URL, ticket_ttl=3)


def test_the_options_of_the_client_itself() -> None:
    for connect in CONNECTS:
        for options, deadlock_after, fence_ms in (
            ({}, 1.0, 3_600_000),
            ({"deadlock_after": 7, "fence_ttl": timedelta(minutes=1)}, 7.0, 60_000),
            ({"deadlock_after": None, "fence_ttl": 0}, 0.0, 0),
        ):
            client = connect(URL, **options)
            assert client._settings.deadlock_after == deadlock_after
            plans = [
                client.lock("n")._plan,
                client.lock("n", ttl=5)._plan,
                client.semaphore("n", permits=1)._plan,
            ]
            assert {plan.primitive.fence_ms for plan in plans} == {fence_ms}


def test_options_for_far_servers_are_for_all_that_a_client_makes() -> None:
    for connect in CONNECTS:
        client = connect(URL, **FOR_FAR_SERVERS)
        made = [
            client.lock("n"),
            client.lock("n", ttl=12),
            client.semaphore("n", permits=1),
            client.election("n"),
            client.latch("n", 1),
            client.barrier("n", parties=2),
        ]
        for one in made:
            options = one._plan.options
            assert (options.answer_within, options.connect_timeout) == (4.0, 6.5), one
        with pytest.raises(pawlock.ConfigurationError, match=r"request_timeout is 4 s.* with ttl=11"):
            client.lock("n", ttl=11)
        with pytest.raises(pawlock.ConfigurationError, match="unknown option request_timeout"):
            client.lock("n", request_timeout=1)


def test_a_variable_that_leaves_no_time_for_renewals_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_REQUEST_TIMEOUT", "3")
    for connect in CONNECTS:
        with pytest.raises(pawlock.ConfigurationError, match="PAWLOCK_REQUEST_TIMEOUT"):
            connect(URL, ttl=8)


def test_what_a_primitive_has_no_use_for_is_passed_over() -> None:
    for connect in CONNECTS:
        client = connect(URL, handover=3, on_unavailable="local")
        assert client.fair_lock("n")._plan.options.handover == 0
        permits = client.semaphore("n", permits=2)._plan.options
        assert permits.on_unavailable == "local"
        client.multi_lock(["a", "b"])
        with pytest.raises(pawlock.ConfigurationError, match="on_unavailable"):
            client.multi_lock(["a", "b"], on_unavailable="local")


def test_an_unknown_option_names_the_word_for_it() -> None:
    words = [("blocking_timeout", "is timeout"), ("lease_time", "is ttl"), ("nonsense", "known: ")]
    for connect, (wrong, word) in product(CONNECTS, words):
        for make in (lambda: connect(URL, **{wrong: 1}), lambda: connect(URL).lock("n", **{wrong: 1})):
            with pytest.raises(pawlock.ConfigurationError, match=f"unknown option {wrong}.*{word}"):
                make()


def test_what_several_masters_cannot_keep_is_refused_where_it_is_asked_for() -> None:
    for connect in CONNECTS:
        with pytest.raises(pawlock.NotSupported, match="replicas"):
            connect(["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"], replicas=1)
        for name in FOR_FAR_SERVERS:
            with pytest.raises(pawlock.NotSupported, match=f"{name} cannot .*node_timeout"):
                connect(["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"], **{name: 2})
