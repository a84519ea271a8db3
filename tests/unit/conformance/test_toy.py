"""A primitive that is not pawlock's is picked up by being registered; broken on purpose, it is found out."""

from __future__ import annotations

from typing import Any

import pytest

import pawlock
from pawlock.primitives.registry import REGISTRY
from tests.conformance.suite import APIS, CHECKS, Result, broken, checks_of, main, report, run, suite
from tests.support.servers import Server
from tests.unit.conformance.toy import Edit, Variant, registered


def test_a_registered_toy_is_picked_up(valkey: Server) -> None:
    with registered(Variant()) as entry:
        assert len(checks_of(entry)) > 30
        results = run(valkey.url, only=["grant_and_release"])
        assert {r.kind for r in results} == {entry.kind for entry in REGISTRY.values() if entry.leases}
        assert "toy" in {r.kind for r in results}
        assert {r.api for r in results} == set(APIS)
        assert not broken(results), broken(results)
    assert "toy" not in REGISTRY


UNFENCED = (
    Edit("math.max((fence[1] or 0) + 1, now_us)", "7"),
    Edit("math.max((last or 0) + 1, now_us)", "7"),
    Edit("math.max(tonumber(fence[1] or '0') + 1, now_us)", "7"),
)

BROKEN: dict[str, tuple[Variant, set[str]]] = {
    "leave frees whoever holds": (
        Variant(edits=(Edit("local holding = value == token", "local holding = value ~= false"),)),
        {"a_wait_ends_at_its_time", "every_key_has_a_ttl"},
    ),
    "a key without an expiry": (
        Variant(
            edits=(
                Edit("call('SET', NAME, value, 'PXAT', digits(expiry_ms))", "call('SET', NAME, value)"),
                Edit("call('SET', NAME, token, 'PXAT', now_ms + ttl_ms)", "call('SET', NAME, token)"),
            )
        ),
        {"every_key_has_a_ttl", "a_dead_holder_frees_it"},
    ),
    "renew takes the name again": (
        Variant(
            edits=(
                Edit(
                    "  reply = {'U', RID, present(value)}",
                    "  reply = {'H', RID, grant(token, now_ms + ttl_ms, 1), ttl_ms, now_ms}",
                ),
            )
        ),
        {"a_loss_is_told", "a_loss_is_raised_by_the_block"},
    ),
    "the last comes first": (
        Variant(
            edits=(
                Edit("call('ZRANGE', QUEUE, 0, 0)", "call('ZREVRANGE', QUEUE, 0, 0)"),
                Edit(
                    "call('ZRANGE', QUEUE, from, from + BATCH - 1)",
                    "call('ZREVRANGE', QUEUE, from, from + BATCH - 1)",
                ),
            )
        ),
        {"first_come_first_served"},
    ),
    "a release tells nobody": (
        Variant(edits=(Edit("redis.pcall('PUBLISH'", "tostring('PUBLISH'"),)),
        {"a_release_hands_it_on"},
    ),
    "a release passes nothing on": (
        Variant(
            edits=(
                Edit(
                    "local head = call('ZRANGE', QUEUE, 0, 0)[1]\nlocal quick",
                    "local head = false\nlocal quick",
                ),
            )
        ),
        {"a_release_hands_it_on"},
    ),
    "fences stay": (Variant(edits=UNFENCED), {"fences_rise", "a_stale_holder_has_a_lower_fence"}),
    "everybody may queue": (
        Variant(edits=(Edit("if waiters >= max_waiters then", "if false then"),)),
        {"too_many_waiters_are_refused"},
    ),
    "no tombstones": (
        Variant(
            edits=(
                Edit("call('EXISTS', DEAD) == 1", "false"),
                Edit("call('EXISTS', NAME, QUEUE, DEAD) == 0", "call('EXISTS', NAME, QUEUE) == 0"),
            )
        ),
        {"a_late_copy_revives_nothing"},
    ),
    "anybody gets in": (
        Variant(edits=(Edit("call('EXISTS', NAME, QUEUE, DEAD) == 0", "true"),)),
        {"no_more_than_the_capacity", "a_crowd_is_never_inside_together"},
    ),
    "no renewal": (Variant(options={"renew": False}), {"renewal_keeps_it"}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_toy_is_found_out(valkey: Server, name: str) -> None:
    variant, expected = BROKEN[name]
    with registered(variant):
        results = run(valkey.url, ["toy"], only=expected)
    kept = {(r.check, r.api) for r in results if r.error is None}
    assert not kept, f"{name}: these did not notice: {kept}"
    assert len(results) == len(expected) * len(APIS)
    for result in results:
        assert "BROKEN: " in str(result)


# For others -----------------------------------------------------------------------------------------------------------


def test_the_suite_is_a_class_of_tests(valkey: Server) -> None:
    with registered(Variant()) as entry:
        tests: Any = suite(lambda: valkey.url, ["toy"], ["threads"])
    (mark,) = tests.test_promise.pytestmark
    names, cases = mark.args
    assert names == ("entry", "api", "check")
    assert [case.id for case in cases] == [f"toy-threads-{check.name}" for check in checks_of(entry)]
    tests().test_promise(*cases[0].values)
    with registered(Variant(edits=UNFENCED)) as entry, pytest.raises(AssertionError, match="is above"):
        tests().test_promise(entry, "threads", CHECKS["fences_rise"])


def test_the_command_tells_what_is_kept(valkey: Server, capsys: pytest.CaptureFixture[str]) -> None:
    total = 2 * len(checks_of(REGISTRY["latch"]))
    assert main([valkey.url, "latch"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == f"{total} of {total} promises kept"
    assert "latch asyncio a_latch_opens_at_zero: kept\n" in said
    for wrong in ([], ["--help"]):
        assert main(wrong) == 2
        assert "rlock" in capsys.readouterr().out


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(pawlock.ConfigurationError, match="no such primitive: nolock"):
        run("redis://127.0.0.1:1/0", ["nolock"])
    with pytest.raises(pawlock.ConfigurationError, match="no such check: nothing"):
        run("redis://127.0.0.1:1/0", only=["nothing"])
    with pytest.raises(pawlock.ConfigurationError, match="no such primitive: nolock"):
        suite("redis://127.0.0.1:1/0", ["nolock"])


def test_a_report_counts_what_is_broken() -> None:
    results = [
        Result("toy", "threads", "fences_rise", None),
        Result("toy", "asyncio", "fences_rise", AssertionError("expected: fence 1 is above 1")),
        Result("toy", "asyncio", "names_are_apart", KeyError("x")),
    ]
    *lines, last = report(results)
    assert last == "1 of 3 promises kept"
    assert lines[0] == "toy threads fences_rise: kept"
    assert lines[1].startswith("toy asyncio fences_rise: BROKEN: Each grant's fence is above")
    assert "KeyError" in lines[2]
