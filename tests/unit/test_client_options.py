"""Every option of a lock is one of its client, too, sync and async, and has its variable in the environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from itertools import product
from typing import Any

import pytest

import pawlock
from pawlock.core.protocol.options import LockOptions
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
    "fence_ttl": 8000.0,
    "replicas": 2,
    "on_lost": told,
    "on_exit": "warn",
    "on_unavailable": "local",
}
WITH_VARIABLE = [name for name in VALUES if name not in ("on_lost", "renew")]


def options_of(client: pawlock.Client | pawlock.AsyncClient) -> LockOptions:
    return client.lock("n")._plan.options.given


def test_every_option_is_tried() -> None:
    assert set(VALUES) == {field.name for field in fields(LockOptions) if field.init}
    assert all(value != getattr(LockOptions(), name) for name, value in VALUES.items())


def test_an_option_of_the_client_is_the_default_of_its_locks() -> None:
    for connect, (name, value) in product(CONNECTS, VALUES.items()):
        with case(connect, name):
            client = connect(URL, **{name: value})
            assert getattr(options_of(client), name) == value
            assert getattr(options_of(client), name) != getattr(options_of(connect(URL)), name)


def test_its_variable_does_the_same_and_an_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for connect, name in product(CONNECTS, WITH_VARIABLE):
        with case(connect, name), monkeypatch.context() as environment:
            for option, value in {name: VALUES[name]}.items():
                environment.setenv(f"PAWLOCK_{option.upper()}", "0" if value is False else str(value))
            assert getattr(options_of(connect(URL)), name) == VALUES[name]
            default = getattr(LockOptions(), name)
            if default is not None:
                assert getattr(options_of(connect(URL, **{name: default})), name) == default


def test_a_variable_that_can_never_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for connect, name in product(CONNECTS, WITH_VARIABLE):
        with case(connect, name), monkeypatch.context() as environment:
            environment.setenv(f"PAWLOCK_{name.upper()}", "-7x")
            with pytest.raises(pawlock.ConfigurationError, match=f"PAWLOCK_{name.upper()}"):
                connect(URL)


def test_a_variable_of_the_client_itself_that_can_never_work_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = [
        ("PAWLOCK_DEADLOCK_AFTER", "soon"),
        ("PAWLOCK_DEADLOCK_AFTER", "-1"),
        ("PAWLOCK_DEADLOCK_AFTER", "0.001"),
        ("PAWLOCK_STRICT", "maybe"),
    ]
    for connect, (variable, value) in product(CONNECTS, wrong):
        with case(connect, variable, value), monkeypatch.context() as environment:
            environment.setenv(variable, value)
            with pytest.raises(pawlock.ConfigurationError, match=rf"^{variable} must be .*{value}"):
                connect(URL)


def test_an_argument_replaces_what_only_fits_the_variable_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_TICKET_TTL", "9")
    for connect in CONNECTS:
        assert options_of(connect(URL, ttl=6)).ticket_ttl == 3


def test_the_options_of_the_client_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWLOCK_DEADLOCK_AFTER", "7")
    monkeypatch.setenv("PAWLOCK_STRICT", "yes")
    for connect in CONNECTS:
        settings = connect(URL)._settings
        assert (settings.deadlock_after, settings.strict) == (7, True)
        settings = connect(URL, deadlock_after=None, strict=False)._settings
        assert (settings.deadlock_after, settings.strict) == (0, False)


def test_what_a_primitive_has_no_use_for_is_passed_over() -> None:
    for connect in CONNECTS:
        client = connect(URL, handover=3, on_unavailable="local")
        assert client.fair_lock("n")._plan.options.handover == 0
        permits = client.semaphore("n", permits=2)._plan.options.given
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
