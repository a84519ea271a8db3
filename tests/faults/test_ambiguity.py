"""Requests and replies that are lost, late or doubled: every operation ends with an honest outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from traceback import format_exception
from typing import Any

import pytest
import redis

import pawlock
from tests.faults.conftest import warm
from tests.faults.rig import (
    Api,
    Client,
    Lease,
    Lock,
    helper,
    in_thread,
    key,
    remains,
    script,
    until,
    until_aged,
    waiters,
)
from tests.support.pace import pace
from tests.support.proxy import Action, Proxy, Request, Rule
from tests.support.servers import Server

pytestmark = pytest.mark.fault

QUICK: dict[str, Any] = {"ttl": 20.0, "ticket_ttl": 1.2}
"""A lease that lasts, and requests that are given up after 0.4 s."""

FAULTS: dict[str, Callable[[Proxy, Any], Rule]] = {
    "reply swallowed": lambda proxy, match: proxy.swallow_reply(match),
    "reply late": lambda proxy, match: proxy.hold_reply(match, seconds=0.6),
    "connection reset in place of the reply": lambda proxy, match: proxy.kill_on_reply(match),
    "request lost": lambda proxy, match: proxy.drop_request(match),
    "request late": lambda proxy, match: proxy.hold_request(match, seconds=0.6),
    "connection reset before the request": lambda proxy, match: proxy.reset(match),
    "request doubled": lambda proxy, match: proxy.duplicate_request(match),
    "request doubled late": lambda proxy, match: proxy.duplicate_request_late(match, seconds=0.2),
}


def holder(server: Server, name: str = "n") -> str | None:
    value = server.command("GET", key(name))
    return value.decode() if isinstance(value, bytes) else None


def fence_of(server: Server, name: str = "n") -> int:
    return int(bytes(server.command("HGET", helper(name, "fence"), "cur") or b"0"))  # type: ignore[arg-type]


def tokens_of(proxy: Proxy, name: str) -> set[bytes]:
    """The tokens that were sent with a script: the argument behind the keys."""
    return {request.args[3 + int(request.args[2])] for request in proxy.requests(script(name))}


def is_free(server: Server, name: str = "") -> bool:
    """Whether nothing is kept of a name, or of any."""
    return not [key for key in remains(server) if name in key]


@dataclass
class Trial:
    """One fault: a client behind a proxy of its own, a rival straight at the server, and a name."""

    name: str
    fault: Callable[[Proxy, Any], Rule]
    proxy: Proxy
    client: Client
    rival: Client
    server: Server

    def lock(self, client: Client | None = None, **options: Any) -> Lock:
        return (client or self.client).lock(self.name, **QUICK, **options)

    def until_free(self) -> None:
        until(lambda: is_free(self.server, self.name), what="a free name and an empty queue")


def each_fault(api: Api, server: Server, body: Callable[[Trial], None]) -> None:
    """Carry out a trial for each fault, all at once: most of the time they wait."""
    with ExitStack() as stack:
        rival, running = warm(api.connect(server.url)), {}
        for number, (what, fault) in enumerate(FAULTS.items()):
            proxy = stack.enter_context(Proxy(server))
            trial = Trial(f"n{number}", fault, proxy, warm(api.connect(proxy.url)), rival, server)
            running[what] = in_thread(partial(body, trial))
        failed = {what: error for what, future in running.items() if (error := future.exception(60))}
        assert not failed, "\n".join("".join(format_exception(error)) for error in failed.values())


def test_acquire(api: Api, server: Server) -> None:
    def trial(one: Trial) -> None:
        rule = one.fault(one.proxy, script("acquire"))
        lease = one.lock().acquire(5)
        rule.wait()
        assert holder(server, one.name) == lease.token
        assert fence_of(server, one.name) == lease.fence
        assert len(tokens_of(one.proxy, "acquire")) == 1
        assert 0 < lease.remaining() <= 20
        if rule.action is Action.DUPLICATE_REQUEST_LATE:
            # No client ever sends a request once more after its reply, and TCP does not double it.
            rule.wait(hits=1)
        lease.release()
        one.until_free()
        # A late copy must not take the name again.
        time.sleep(0.4)
        assert is_free(server, one.name)

    each_fault(api, server, trial)


@pytest.fixture
def aged(server: Server) -> Server:
    """See ``until_aged``."""
    until_aged(server)
    return server


def test_release(api: Api, aged: Server) -> None:
    server = aged

    def trial(one: Trial) -> None:
        lease = one.lock().acquire(5)
        rule = one.fault(one.proxy, script("leave"))
        lease.release()
        rule.wait()
        assert is_free(server, one.name)
        with pytest.raises(pawlock.NotHeld):
            lease.release()
        second = one.lock().acquire(5)
        time.sleep(0.3)
        assert holder(server, one.name) == second.token
        assert second.fence > lease.fence
        second.release()

    each_fault(api, server, trial)


def test_extend(api: Api, server: Server) -> None:
    def trial(one: Trial) -> None:
        lease = one.lock(renew=False).acquire(5)
        rule = one.fault(one.proxy, script("renew"))
        lease.extend(40)
        rule.wait()
        assert 20_000 < int(str(server.command("PTTL", key(one.name)))) <= 40_000
        assert 20 < lease.remaining() < 40
        assert holder(server, one.name) == lease.token
        lease.release()
        assert is_free(server, one.name)

    each_fault(api, server, trial)


def test_renewal(api: Api, server: Server) -> None:
    def trial(one: Trial) -> None:
        rule = one.fault(one.proxy, script("renew"))
        lease = one.lock(renew=0.15).acquire(5)
        rule.wait()
        before = lease.raw.valid_until
        until(lambda: lease.raw.valid_until > before, what="a good renewal after the bad one")
        assert lease.state == "held"
        assert holder(server, one.name) == lease.token
        lease.release()
        assert is_free(server, one.name)

    each_fault(api, server, trial)


def test_ticket(api: Api, server: Server) -> None:
    def trial(one: Trial) -> None:
        held = one.lock(one.rival).acquire(5)
        rule = one.fault(one.proxy, script("renew"))
        waiting = one.lock().start(20)
        rule.wait(10)
        time.sleep(0.3)
        held.release()
        lease = waiting.result(10)
        assert holder(server, one.name) == lease.token
        assert lease.fence > held.fence
        lease.check()
        lease.release()
        one.until_free()

    each_fault(api, server, trial)


def test_queueing(api: Api, server: Server) -> None:
    def trial(one: Trial) -> None:
        held = one.lock(one.rival).acquire(5)
        rule = one.fault(one.proxy, script("acquire"))
        waiting = one.lock().start(20)
        rule.wait()
        until(lambda: waiters(server, one.name) == 1, what="the waiter's ticket")
        held.release()
        lease = waiting.result(10)
        assert holder(server, one.name) == lease.token
        assert waiters(server, one.name) == 0
        lease.release()
        time.sleep(0.3)
        one.until_free()

    each_fault(api, server, trial)


# The rows of the fault list ---------------------------------------------------------------------------------------


def test_row_01_a_lost_reply_to_a_try_is_never_a_no(client: Client, proxy: Proxy, server: Server) -> None:
    proxy.swallow_reply(script("acquire"), times=None)
    with pytest.raises(pawlock.BackendUnavailable):
        client.lock(**QUICK).try_acquire()
    until(lambda: is_free(server), what="the undo")


def test_row_01_the_same_fence_is_answered_again(client: Client, proxy: Proxy, server: Server) -> None:
    rule = proxy.swallow_reply(script("acquire"))
    lease = client.lock(**QUICK).acquire(5)
    rule.wait()
    first = fence_of(server)
    assert lease.fence == first
    assert len(proxy.requests(script("acquire"))) >= 2


def test_row_02_without_any_answer_it_is_unknown_and_undone(
    client: Client, proxy: Proxy, server: Server
) -> None:
    rule = proxy.kill_on_reply(script("acquire"), times=None)
    began = time.monotonic()
    with pytest.raises(pawlock.BackendUnavailable):
        client.lock(**QUICK, unavailable_after=1).acquire(30)
    assert time.monotonic() - began < pace() * 6
    rule.wait(hits=3)
    until(lambda: is_free(server), what="the undo")
    assert len(tokens_of(proxy, "acquire")) == 1


def test_row_03_a_timeout_ends_the_wait_for_a_silent_server(client: Client, proxy: Proxy) -> None:
    proxy.blackhole()
    began = time.monotonic()
    with pytest.raises(pawlock.BackendUnavailable):
        client.lock().acquire(1)
    # One more request timeout (1 s) and one handshake at most.
    assert 0.9 < time.monotonic() - began < pace() * 5


def test_row_05_a_lost_reply_to_release_is_no_false_not_owner(
    client: Client, proxy: Proxy, aged: Server
) -> None:
    for _ in range(2):
        lease = client.lock(**QUICK).acquire(5)
        rule = proxy.kill_on_reply(script("leave"), times=2)
        lease.release()
        rule.wait(hits=2)
        assert is_free(aged)


def test_row_06_a_release_that_never_arrives_is_unknown(client: Client, proxy: Proxy, server: Server) -> None:
    lease = client.lock(ttl=1, unavailable_after=0.5).acquire(5)
    proxy.blackhole()
    with pytest.raises(pawlock.BackendUnavailable):
        lease.release()
    assert lease.state == "released"
    until(lambda: holder(server) is None, what="the end of the ttl")
    proxy.blackhole(on=False)
    again = client.lock(ttl=1).acquire(5)
    assert again.fence > lease.fence
    again.check()


@pytest.mark.parametrize("gone", ["timed out", "released"])
def test_row_07_a_late_acquire_meets_a_tombstone(
    gone: str, client: Client, proxy: Proxy, server: Server
) -> None:
    rule = proxy.hold_request(script("acquire"))
    if gone == "timed out":
        proxy.swallow_reply(script("acquire"), times=None)
        with pytest.raises(pawlock.BackendUnavailable):
            client.lock(**QUICK).acquire(0.8)
    else:
        client.lock(**QUICK).acquire(5).release()
    rule.wait()
    until(lambda: is_free(server), what="the undo or release")
    asked = calls(server)
    rule.release()
    until(lambda: calls(server) > asked, what="the late copy")
    assert is_free(server)


def test_row_07_a_late_acquire_after_a_hand_over(client: Client, proxy: Proxy, server: Server) -> None:
    rule = proxy.hold_request(script("acquire"))
    lock = client.lock(**QUICK)
    first = lock.acquire(5)
    waiting = [lock.start(10) for _ in range(3)]
    first.release()
    for future in waiting:
        future.result(10).release()
    rule.wait()
    until(lambda: is_free(server), what="the release")
    asked = calls(server)
    rule.release()
    until(lambda: calls(server) > asked, what="the late copy")
    assert is_free(server)


def test_row_08_an_old_release_never_frees_a_newer_grant(
    client: Client, rival: Client, proxy: Proxy, server: Server
) -> None:
    rule = proxy.duplicate_request_late(script("leave"))
    client.lock(**QUICK).acquire(5).release()
    newer = rival.lock(**QUICK).acquire(5)
    rule.release()
    rule.wait()
    assert holder(server) == newer.token
    newer.check()


def test_row_09_a_grant_that_comes_too_late_is_no_grant(client: Client, proxy: Proxy, server: Server) -> None:
    """Its validity counts from the send: what the wait has used up is gone."""
    rule = proxy.hold_reply(script("acquire"), seconds=0.35)
    lease = client.lock(ttl=3, ticket_ttl=3, renew=False).acquire(5)
    rule.wait()
    left = int(str(server.command("PTTL", key("n")))) / 1000
    assert 0 < lease.remaining() <= left + 0.01 < 2.8


def test_row_13_replies_never_reach_another_request(
    client: Client, proxy: Proxy, server: Server, api: Api
) -> None:
    """Late replies come while other requests are under way on the same connection."""
    proxy.hold_reply(script("acquire"), seconds=0.3, nth=3, times=2)
    leases: dict[str, Lease] = {}
    futures = {f"n{i}": client.lock(f"n{i}", ttl=20.0, ticket_ttl=0.6).start(10) for i in range(12)}
    for name, future in futures.items():
        leases[name] = future.result(10)
    for name, lease in leases.items():
        assert holder(server, name) == lease.token
        assert fence_of(server, name) == lease.fence
        lease.release()
    until(lambda: is_free(server), what="free names")


def calls(server: Server) -> int:
    with redis.Redis(unix_socket_path=server.socket_path) as plain:
        stats: Any = plain.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("evalsha", "eval"))


def test_the_matcher_knows_the_scripts(client: Client, proxy: Proxy) -> None:
    client.lock().acquire(5).release()

    def sent(name: str) -> list[Request]:
        return proxy.requests(script(name))

    # A free name is asked for twice more, in one go: it may be held as one of the other kinds, or be run once.
    assert [len(sent(name)) for name in ("acquire", "leave", "renew", "inspect")] == [1, 1, 0, 3]
