"""``once``: one client does it, everybody else gets its result, whatever is lost, killed or cancelled meanwhile."""

from __future__ import annotations

import gc
import pickle
import threading
from typing import Any

import pytest

import pawlock
from tests.contract.gates.rig import Made, endless, make, number
from tests.faults.rig import Api, remains, until
from tests.support.proxy import Proxy
from tests.support.published import runs
from tests.support.refusal import case
from tests.support.servers import Server

DONE = "{pawlock:%once:n}:1:done"
KEY = "pawlock:%once:n"
QUEUE = "{pawlock:%once:n}:1:queue"


def begun(once: Made, **options: object) -> Any:
    return once.do("begin", **options)


def finish(api: Api, state: Any, *args: object, **options: object) -> None:
    api.run(lambda: state.finish(*args, **options))


def abandon(api: Api, state: Any) -> None:
    api.run(state.abandon)


@pytest.fixture
def once(clean: Server, api: Api) -> Made:
    return make(api.connect(clean.url), "once", "n")


@pytest.fixture
def other(clean: Server, api: Api) -> Made:
    return make(api.connect(clean.url), "once", "n")


def scripts_run(server: Server) -> int:
    found = server.command("INFO", "commandstats")
    assert isinstance(found, bytes)
    lines = [
        line for line in found.decode().splitlines() if line.startswith(("cmdstat_evalsha", "cmdstat_eval:"))
    ]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


VALUES = [None, b"", b"\x00\xff", "", "grüße \ud800", 0, True, 1.5, [1, [2]], {"a": {"b": None}}, "x" * 65536]


def test_everybody_gets_the_value_as_it_was(clean: Server, once: Made, other: Made) -> None:
    for value in VALUES:
        with case(value):
            state = begun(once)
            finish(once.api, state, value)
            for found in (begun(other), begun(once), begun(once, wait=True)):
                assert isinstance(found, pawlock.Done)
                assert (found.value, type(found.value), found.fence) == (value, type(value), state.fence)
            assert 0 < number(clean, "PTTL", DONE) <= 86_400_000
            assert not endless(clean)
            once.do("forget")


def test_it_takes_two_commands(clean: Server, once: Made) -> None:
    finish(once.api, begun(once), 1)
    clean.command("DEL", DONE)
    before = scripts_run(clean)
    finish(once.api, begun(once), 2)
    assert scripts_run(clean) - before == 2


def test_the_result_is_kept_for_as_long_as_is_said(clean: Server, once: Made, other: Made) -> None:
    state = begun(once)
    finish(once.api, state, "short", keep=0.05)
    until(lambda: not number(clean, "EXISTS", DONE))
    again = begun(other)
    assert again.fence > state.fence
    abandon(other.api, again)
    assert not remains(clean)


def test_one_runs_and_the_others_are_told_by_whom(once: Made, other: Made) -> None:
    state = begun(once)
    for found in (begun(other), begun(once)):
        assert isinstance(found, pawlock.Running)
        assert found.holder
        assert ":" in found.holder
    assert state.lease.remaining() > 0
    abandon(once.api, state)


def test_who_waits_is_told_by_a_message(clean: Server, api: Api, proxy: Proxy) -> None:
    """Ten of two clients: each asks once, and once more when it is told; nobody polls."""
    first = make(api.connect(clean.url), "once", "n", ttl=600, ticket_ttl=600)
    others = [make(api.connect(proxy.url), "once", "n", ttl=600, ticket_ttl=600) for _ in range(2)]
    asking = runs("once/begin", "once/renew")
    state = begun(first, wait=True)
    waiting = [made.start("begin", wait=True, timeout=60) for made in others for _ in range(5)]
    until(lambda: number(clean, "ZCARD", QUEUE) == 10)
    before = len(proxy.requests(asking))
    finish(api, state, "told")
    for call in waiting:
        found = call.result(20)
        assert isinstance(found, pawlock.Done)
        assert found.value == "told"
    assert len(proxy.requests(asking)) - before <= 10
    assert [name for name in remains(clean) if name != DONE] == []


def test_a_lost_message_costs_a_third_of_a_ticket(clean: Server, api: Api, proxy: Proxy) -> None:
    state = begun(make(api.connect(clean.url), "once", "n"))
    waiting = make(api.connect(proxy.url), "once", "n", ticket_ttl=0.6).start("begin", wait=True, timeout=60)
    until(lambda: number(clean, "ZCARD", QUEUE) == 1)
    proxy.cut_push("message")
    finish(api, state, "asked for")
    assert waiting.result(20).value == "asked for"


def test_when_it_is_abandoned_the_first_waiter_starts(clean: Server, once: Made, other: Made) -> None:
    state = begun(once)
    waiting = other.start("begin", wait=True, timeout=60)
    until(lambda: number(clean, "ZCARD", QUEUE) == 1)
    abandon(once.api, state)
    again = waiting.result(20)
    assert again.fence > state.fence
    with pytest.raises(pawlock.NotHeld):
        finish(once.api, state, "late")
    with pytest.raises(pawlock.NotHeld):
        abandon(once.api, state)
    finish(other.api, again, "second")
    assert begun(once).value == "second"


def test_a_stale_holder_records_nothing(clean: Server, once: Made, other: Made) -> None:
    state = begun(once)
    clean.command("DEL", KEY)
    again = begun(other)
    with pytest.raises(pawlock.LeaseLost):
        finish(once.api, state, "late")
    assert not number(clean, "EXISTS", DONE)
    finish(other.api, again, "good")
    with pytest.raises(pawlock.NotHeld):
        finish(once.api, state, "later")
    assert begun(once).value == "good"


def test_a_finish_after_the_lease_was_lost_here_asks_nothing(clean: Server, api: Api, proxy: Proxy) -> None:
    far = make(api.connect(proxy.url), "once", "n", ttl=0.4)
    state = begun(far)
    proxy.blackhole()
    until(lambda: state.lease.lost)
    with pytest.raises(pawlock.LeaseLost):
        finish(api, state, "late")
    proxy.blackhole(on=False)
    assert not proxy.requests(runs("once/finish"))


def test_another_value_ends_it_without_a_result(clean: Server, once: Made) -> None:
    state = begun(once)
    clean.command("SET", KEY, "somebody@else:1/b" + "x" * 22, "PX", "60000")
    with pytest.raises(pawlock.LeaseLost):
        finish(once.api, state, "late")
    assert not number(clean, "EXISTS", DONE)


def test_a_finish_whose_request_or_reply_is_lost_is_recorded_once(
    clean: Server, api: Api, proxy: Proxy
) -> None:
    far, near = (make(api.connect(url), "once", "n", ttl=20) for url in (proxy.url, clean.url))
    for fault in ("swallow_reply", "kill_on_reply", "reset", "drop_request", "duplicate_request"):
        with case(fault):
            state = begun(far)
            getattr(proxy, fault)(runs("once/finish"))
            finish(api, state, "once")
            found = begun(near)
            assert isinstance(found, pawlock.Done)
            assert (found.value, found.fence) == ("once", state.fence)
            assert not number(clean, "EXISTS", KEY)
            proxy.clear()
            near.do("forget")


def test_a_late_copy_of_a_finish_does_not_end_the_next_one(clean: Server, api: Api, proxy: Proxy) -> None:
    far, near = make(api.connect(proxy.url), "once", "n"), make(api.connect(clean.url), "once", "n")
    state = begun(far)
    late = proxy.duplicate_request_late(runs("once/finish"))
    finish(api, state, "first")
    near.do("forget")
    again = begun(near)
    late.release()
    proxy.wait_hit(late)
    assert again.lease.remaining() > 0
    finish(api, again, "second")
    assert begun(near).value == "second"


def test_a_lost_reply_to_begin_starts_one(clean: Server, api: Api, proxy: Proxy) -> None:
    far, near = make(api.connect(proxy.url), "once", "n"), make(api.connect(clean.url), "once", "n")
    proxy.kill_on_reply(runs("once/begin"))
    state = begun(far)
    assert isinstance(begun(near), pawlock.Running)
    finish(api, state, 1)
    assert begun(near).value == 1


def test_an_unreachable_server_leaves_it_open_whether_it_was_recorded(
    clean: Server, api: Api, proxy: Proxy
) -> None:
    far = make(api.connect(proxy.url), "once", "n", ttl=0.6, unavailable_after=0.2)
    state = begun(far)
    proxy.drop_request(runs("once/finish"), times=None)
    with pytest.raises(pawlock.BackendUnavailable):
        finish(api, state, "maybe")
    proxy.clear()
    # The request is repeated in the background; by then its lease is over, so that it records nothing.
    found = begun(make(api.connect(clean.url), "once", "n"), wait=True, timeout=60)
    assert isinstance(found, (pawlock.Started, pawlock.AsyncStarted, pawlock.Done))


def test_a_full_server_refuses_the_result_and_the_lease_is_kept(own_server: Server, api: Api) -> None:
    once = make(api.connect(own_server.url), "once", "n", unavailable_after=0.2)
    state = begun(once)
    own_server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(pawlock.BackendOutOfMemory, match="the result may be recorded"):
        finish(api, state, "no room")
    own_server.command("CONFIG", "SET", "maxmemory", "0")
    found = begun(make(api.connect(own_server.url), "once", "n"), wait=True, timeout=60)
    # It is repeated in the background, and its lease lives.
    assert isinstance(found, pawlock.Done)
    assert found.value == "no room"


def test_a_value_that_cannot_be_kept_is_refused_and_the_lease_goes_on(once: Made) -> None:
    state = begun(once)
    for value in (object(), float("nan"), {1, 2}, "x" * 65537, ["x" * 65530, "y"]):
        with case(type(value)), pytest.raises(pawlock.ConfigurationError):
            finish(once.api, state, value)
        assert state.lease.remaining() > 0
    finish(once.api, state, "smaller")
    assert begun(once).value == "smaller"


def test_a_wrong_option_is_refused_where_it_is_given(clean: Server, api: Api) -> None:
    client = api.connect(clean.url)
    options: list[dict[str, Any]] = [
        {"keep": 0}, {"keep": -1}, {"keep": 367 * 86400}, {"keep": "1d"}, {"wait": 1}, {"handover": 3},
        {"min_hold": 1}, {"replicas": 1}, {"ttl": 0},
    ]  # fmt: skip
    for given in options:
        with case(given), pytest.raises(pawlock.ConfigurationError):
            client.raw.once("n", **given)


def test_a_name_with_fields_needs_a_function(clean: Server, api: Api) -> None:
    once = make(api.connect(clean.url), "once", "n:{number}")
    with pytest.raises(pawlock.ConfigurationError, match="fields"):
        begun(once)


def test_redlock_refuses_it(clean: Server, api: Api) -> None:
    client = api.connect(["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"])
    with pytest.raises(pawlock.NotSupported, match="once"):
        client.raw.once("n")


def test_waiting_ends_in_time_and_at_stop(once: Made, other: Made) -> None:
    state = begun(once)
    with pytest.raises(pawlock.AcquireTimeout):
        begun(other, wait=True, timeout=0.05)
    stop = threading.Event()
    waiting = other.start("begin", wait=True, timeout=60, stop=stop)
    stop.set()
    with pytest.raises(pawlock.NotAcquired):
        waiting.result(20)
    abandon(once.api, state)


def test_who_runs_it_does_not_wait_for_itself(clean: Server) -> None:
    with pawlock.connect(clean.url) as client:
        with client.once("n"), pytest.raises(pawlock.DeadlockDetected, match="finish or abandon it first"):
            client.once("n").begin(wait=True)
        client.once("n").forget()
        state = client.once("n").begin()
        # Another thread may finish it.
        with pytest.raises(pawlock.AcquireTimeout, match="finish or abandon it first"):
            client.once("n").begin(wait=True, timeout=0.1)
        assert isinstance(state, pawlock.Started)
        state.finish()


def test_what_is_dropped_is_started_again_after_its_ttl(clean: Server, other: Made) -> None:
    with pawlock.connect(clean.url, ttl=0.5) as client:
        with pytest.warns(ResourceWarning, match="'n'"):  # noqa: PT031 - it is dropped at once
            client.once("n").begin()
            gc.collect()
        again = begun(other, wait=True, timeout=60)
    abandon(other.api, again)


def test_forget(once: Made, other: Made) -> None:
    assert not once.do("forget")
    finish(once.api, begun(once), 1)
    assert other.do("forget")
    state = begun(once)
    assert not other.do("forget")
    assert state.lease.remaining() > 0
    abandon(once.api, state)


def test_it_can_be_pickled(clean: Server, once: Made) -> None:
    again = Made(once.api, pickle.loads(pickle.dumps(once.raw)))
    finish(once.api, begun(again), "by the copy")
    assert begun(once).value == "by the copy"
