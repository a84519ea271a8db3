"""Every option against every strange value: what is refused, and what a good value becomes."""

from __future__ import annotations

import ast
import gc
import weakref
from datetime import timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

import pawlock
from pawlock._environment import VARIABLES
from pawlock._factory import Settings
from pawlock.cli.once import once
from pawlock.cli.run import run
from pawlock.core.options import (
    LockKwargs,
    LockOptions,
    OnceKwargs,
    check_callback,
    check_count,
    check_timeout,
    check_ttl,
    seconds,
)
from tests.support.refusal import case

OK, BAD = True, False
STRANGE: dict[str, Any] = {
    "0": 0,
    "None": None,
    "negative": -1,
    "inf": inf,
    "-inf": -inf,
    "nan": nan,
    "bool": True,
    "text": "1",
    "timedelta": timedelta(seconds=1),
    "int": 1,
    "float": 1.0,
    "list": [],
}
COLUMNS = list(STRANGE)
#                      0    None  neg  inf   -inf  nan  bool text  td   int   float list
TABLE: dict[str, list[bool]] = {
    "ttl":               [BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
    "renew":             [BAD, BAD, BAD, BAD, BAD, BAD, OK, BAD, OK, OK, OK, BAD],
    "timeout":           [OK, OK, BAD, OK, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
    "unavailable_after": [OK, BAD, BAD, BAD, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
    "max_hold":          [BAD, OK, BAD, BAD, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
    "min_hold":          [OK, BAD, BAD, BAD, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
    "handover":          [OK, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, OK, BAD, BAD],
    "ticket_ttl":        [BAD, OK, BAD, BAD, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
    "max_waiters":       [BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, OK, BAD, BAD],
    "replicas":          [OK, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, OK, BAD, BAD],
    "on_lost":           [BAD, OK, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD],
    "on_exit":           [BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD],
    "on_unavailable":    [BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD, BAD],
}  # fmt: skip
#                      0    None  neg  inf   -inf  nan  bool text  td   int   float list
OF_A_CLIENT: dict[str, list[bool]] = {
    "fence_ttl":         [OK, BAD, BAD, BAD, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
    "request_timeout":   [BAD, OK, BAD, BAD, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
    "connect_timeout":   [BAD, OK, BAD, BAD, BAD, BAD, BAD, BAD, OK, OK, OK, BAD],
}  # fmt: skip
CASES: list[tuple[str, Any, bool]] = [
    (option, STRANGE[column], good)
    for option, row in {**TABLE, **OF_A_CLIENT}.items()
    for column, good in zip(COLUMNS, row, strict=True)
]


def test_each_option_with_each_value() -> None:
    for option, value, good in CASES:
        with case(option, value, good):
            given: dict[str, Any] = {option: value}
            if good:
                LockOptions(**given)
            else:
                with pytest.raises(pawlock.ConfigurationError, match=option):
                    LockOptions(**given)


def test_the_table_has_every_option() -> None:
    assert set(TABLE) == set(LockOptions.known())
    assert set(TABLE) | set(OF_A_CLIENT) == set(LockOptions.known(client=True))


def test_an_option_is_stated_once() -> None:
    """A new one needs its file, where it acts, and its test: no other file of pawlock lists options."""
    known = LockOptions.known()
    assert set(LockKwargs.__annotations__) == set(known)
    for path in Path(pawlock.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                words = {one.id for one in fields if isinstance(one, ast.Name)}
            elif isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set):
                words = {
                    str(one.value) for one in ast.iter_child_nodes(node) if isinstance(one, ast.Constant)
                }
            else:
                continue
            assert len(words & set(known)) < 5 or path.name == "options.py", path


def test_what_follows_from_the_metadata_of_an_option() -> None:
    told: dict[str, Any] = {
        "ttl": 8,
        "renew": 1,
        "max_hold": 9,
        "min_hold": 1,
        "handover": 2,
        "ticket_ttl": 2,
    }
    told |= {"replicas": 1, "on_lost": print, "on_exit": "warn", "on_unavailable": "open"}
    own: dict[str, Any] = {"timeout": 1, "unavailable_after": 1, "max_waiters": 1}
    assert told.keys() | own.keys() == LockOptions.known().keys()
    group = LockOptions().queue_group
    for name, value in told.items():
        assert LockOptions(**{name: value}).queue_group != group, name
    assert LockOptions(**own).queue_group == group
    of_clients = LockOptions(request_timeout=2, connect_timeout=3, fence_ttl=4)
    assert of_clients.queue_group == group, "they are the same for all locks of a client"
    with_variable = LockOptions.known("environment", client=True)
    assert {option: f"PAWLOCK_{option.upper()}" for option in with_variable} == VARIABLES
    for command, kinds in ((run, LockKwargs), (once, OnceKwargs)):
        # --on-lost says what becomes of the command.
        flags = {parameter.name for parameter in command.params} & LockOptions.known().keys() - {"on_lost"}
        assert flags == LockOptions.known("flag").keys() & kinds.__annotations__.keys()


def test_defaults() -> None:
    options = LockOptions()
    assert (options.ttl, options.renew, options.rhythm.every, options.timeout) == (30.0, True, 10.0, None)
    assert (options.handover, options.ticket, options.max_waiters) == (64, 3.0, 10_000)
    assert (options.ttl_ms, options.ticket_ms, options.block) == (30_000, 3_000, 65)
    assert (options.unavailable_after, options.min_hold, options.max_hold) == (10.0, 0.0, None)
    assert options.on_exit == "raise"


def test_what_follows_from_a_ttl() -> None:
    ttls: tuple[Any, ...] = (0.05, 0.3, 1.0, 3.0, 30.0, 86400.0, 366 * 86400.0, timedelta(minutes=1))
    for ttl in ttls:
        with case(ttl):
            options = LockOptions(ttl=ttl)
            assert isinstance(options.ttl, float)
            assert options.rhythm.every == options.ttl / 3
            assert options.ticket == min(3.0, options.ttl)
            assert options.answer_within <= options.ticket / 3, "two tries fit into a ticket"
            assert options.ttl_ms >= options.ttl * 1000, "the server keeps it no shorter"


def test_what_follows_from_a_request_timeout() -> None:
    for answers, ttl, ticket in (
        (0.2, 30.0, 3.0),
        (1.0, 30.0, 3.0),
        (3.0, 30.0, 9.0),
        (0.1, 0.3, 0.3),
        (10, 30, 30),
    ):
        with case(answers, ttl):
            options = LockOptions(ttl=ttl, request_timeout=answers)
            assert options.answer_within == answers
            assert options.ticket == pytest.approx(ticket), "two tries fit into a ticket"
    given: Any = timedelta(seconds=2)
    assert LockOptions(request_timeout=given).request_timeout == 2.0
    assert LockOptions(connect_timeout=given).connect_timeout == 2.0


def test_a_request_timeout_leaves_the_time_to_ask_again() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"request_timeout": 10}, True),
        ({"request_timeout": 10.1}, False),
        ({"request_timeout": 3, "ttl": 9}, True),
        ({"request_timeout": 3, "ttl": 8}, False),
        ({"request_timeout": 3, "ttl": 8, "renew": False}, False),
        ({"request_timeout": 3, "ticket_ttl": 9}, True),
        ({"request_timeout": 3, "ticket_ttl": 8}, False),
        ({"request_timeout": 9, "renew": 12}, True),
        ({"request_timeout": 9.1, "renew": 12}, False),
        ({"connect_timeout": 1000, "ttl": 1}, True),
        ({"connect_timeout": 367 * 86400}, False),
    ]
    for options, good in cases:
        with case(options):
            if good:
                LockOptions(**options)
            else:
                with pytest.raises(pawlock.ConfigurationError, match="_timeout"):
                    LockOptions(**options)
    with pytest.raises(pawlock.ConfigurationError, match="request_timeout is 3 s"):
        LockOptions(request_timeout=3).but(ttl=5)


def test_ttls_out_of_bounds() -> None:
    for ttl in (0.0499, 0, -1, 366 * 86400 + 1, inf, -inf, nan, 1e308):
        with case(ttl), pytest.raises(pawlock.ConfigurationError, match="ttl"):
            check_ttl(ttl)


def test_infinite_timeouts_wait_for_ever() -> None:
    assert check_timeout(inf) is None
    assert check_timeout(None) is None
    assert check_timeout(0) == 0.0
    assert LockOptions(timeout=inf).timeout is None


def test_renewal_must_come_twice_in_a_ttl() -> None:
    cases: list[tuple[float, float, bool]] = [
        (9.9, 20.0, True),
        (10.0, 20.0, False),
        (10.1, 20.0, False),
        (0.02, 0.05, True),
    ]
    for every, ttl, good in cases:
        with case(every, ttl, good):
            if good:
                options = LockOptions(ttl=ttl, renew=timedelta(seconds=every))
                assert options.renew == options.rhythm.every == every
            else:
                with pytest.raises(pawlock.ConfigurationError, match="half the TTL"):
                    LockOptions(ttl=ttl, renew=every)


def test_a_ticket_is_a_lease_too() -> None:
    with pytest.raises(pawlock.ConfigurationError, match="at most ttl"):
        LockOptions(ttl=2.0, ticket_ttl=2.1)
    assert LockOptions(ttl=2.0, ticket_ttl=2.0).ticket_ms == 2000


def test_max_hold_needs_renewal() -> None:
    with pytest.raises(pawlock.ConfigurationError, match="renew=False"):
        LockOptions(max_hold=5.0, renew=False)


def test_who_hands_over() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"handover": 0}, False),
        ({"renew": False}, False),
        ({"min_hold": 0.1}, False),
    ]
    for options, hands in cases:
        with case(options, hands):
            made = LockOptions(**options)
            assert made.hands_over is hands
            assert made.block == (65 if hands else 1)


def test_a_changed_ttl_brings_its_own_rhythm() -> None:
    changed = LockOptions(ttl=30.0, renew=5.0, ticket_ttl=2.0).but(ttl=1.0)
    assert changed.renew is True
    assert changed.rhythm.every == pytest.approx(1 / 3)
    assert changed.ticket == 1.0
    assert LockOptions(ttl=30.0, renew=5.0).but(timeout=1.0).renew == 5.0
    assert LockOptions(renew=False).but(ttl=1.0).renew is False
    assert LockOptions().but(ttl=1.0, renew=0.2).renew == 0.2
    same = LockOptions()
    assert same.but() is same
    with pytest.raises(pawlock.ConfigurationError):
        same.but(ttl=0)


def test_options_cannot_be_changed_or_taken_by_position() -> None:
    with pytest.raises(AttributeError):
        LockOptions().ttl = 5.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        LockOptions(5.0)  # type: ignore[call-arg]
    assert LockOptions(ttl=5) == LockOptions(ttl=5.0)
    assert hash(LockOptions(ttl=5)) == hash(LockOptions(ttl=5.0))


def test_durations() -> None:
    assert seconds(timedelta(milliseconds=1500), "x") == 1.5
    assert seconds(3, "x") == 3.0
    assert isinstance(seconds(3, "x"), float)
    with pytest.raises(pawlock.ConfigurationError, match="x is too large"):
        seconds(10**400, "x")


def test_counts() -> None:
    assert check_count(0, "x", 0, 3) == 0
    for wrong in (-1, 4, True, 1.0, "1", None):
        with pytest.raises(pawlock.ConfigurationError, match="x"):
            check_count(wrong, "x", 0, 3)


def test_callbacks() -> None:
    async def apied(_lease: object) -> None: ...

    assert check_callback(None, may_be_async=False) is None
    assert check_callback(print, may_be_async=False) is print
    assert check_callback(apied, may_be_async=True) is apied
    with pytest.raises(pawlock.ConfigurationError, match="coroutine function"):
        check_callback(apied, may_be_async=False)
    with pytest.raises(pawlock.ConfigurationError, match="callable"):
        check_callback("x", may_be_async=True)


def test_what_was_found_good_is_remembered_and_nothing_that_is_not_the_same() -> None:
    settings = Settings({}, "x", may_be_async=False)
    found = settings.lock_options({"ttl": 1, "handover": 0})
    assert settings.lock_options({"ttl": 1, "handover": 0}) is found
    assert settings.lock_options({"ttl": 2, "handover": 0}).ttl == 2.0
    assert settings.lock_options({"ttl": 1, "handover": 1}).handover == 1
    values: list[Any] = [True, "1", nan, []]
    for strange in values:
        # True equals 1; the others have no place in a dict, or none that can be found again.
        for _ in range(2):
            with pytest.raises(pawlock.ConfigurationError, match="ttl"):
                settings.lock_options({"ttl": strange})
    with pytest.raises(pawlock.ConfigurationError, match="unknown option tll"):
        settings.lock_options({"tll": 1})


def test_what_is_remembered_of_options_is_little_and_keeps_nothing_alive() -> None:
    settings = Settings({}, "x", may_be_async=False)

    def told(_lease: object) -> None:
        """Told of a loss."""

    alive = weakref.ref(told)
    assert settings.lock_options({"ttl": 1, "on_lost": told}).on_lost is told
    del told
    gc.collect()
    assert alive() is None
    first = settings.lock_options({"ttl": 1.0})
    for number in range(1000):
        settings.lock_options({"ttl": 2.0 + number})
    assert settings.lock_options({"ttl": 1.0}) is not first


def test_the_plan_of_the_same_words_is_remembered() -> None:
    with pawlock.connect("redis://127.0.0.1:1/0", ttl=9.0) as client:
        plan = client.lock("n", ttl=1)._plan
        assert client.lock("n", ttl=1)._plan is plan
        assert client.lock("n", ttl=1.0)._plan.queue_key == plan.queue_key
        others = [
            client.lock("m", ttl=1),
            client.lock("n"),
            client.lock("n", ttl=1, max_hold=1),
            client.lock("n", max_hold=1),
            client.rlock("n", ttl=1),
            client.fair_lock("n", ttl=1),
        ]
        assert (
            len({plan.queue_key, *(lock._plan.queue_key + lock._plan.primitive.kind for lock in others)}) > 5
        )
        assert client.lock("n")._plan.options.rhythm.ttl == 9.0


def test_a_remembered_plan_lets_nothing_pass_that_is_refused() -> None:
    with pawlock.connect("redis://127.0.0.1:1/0") as client:
        client.lock("n", ttl=1, renew=True)
        lock: Any = client.lock
        for given in (
            {"ttl": True, "renew": True},
            {"ttl": 1, "renew": 1},
            {"ttl": [], "renew": True},
            {"tll": 1},
        ):
            with pytest.raises(pawlock.ConfigurationError):
                lock("n", **given)
        for name in (["n"], b"n", None, 1):
            with pytest.raises(pawlock.ConfigurationError):
                lock(name, ttl=1)
        with pytest.raises(pawlock.ConfigurationError):
            client.fair_lock("n", handover=1)


def test_what_is_remembered_of_plans_is_little_and_keeps_nothing_alive() -> None:
    class Named(str):
        __slots__ = ()

    def told(_lease: object) -> None:
        """Told of a loss."""

    with pawlock.connect("redis://127.0.0.1:1/0") as client:
        alive = weakref.ref(told)
        assert client.lock("n", on_lost=told)._plan.options.on_lost is told
        del told
        gc.collect()
        assert alive() is None
        plan = client.lock("n")._plan
        assert client.lock(Named("n"))._plan is not plan
        assert type(client.lock("n")._plan.primitive.name) is str
        for number in range(1000):
            client.lock(f"n{number}")
        assert len(client._settings.plans) <= 256
        assert client.lock("n")._plan is not plan
