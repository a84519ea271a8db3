"""`client.release(name, token)` and `client.extend(name, token, ttl)`: whoever knows the token of a lease, anywhere."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import pawlock
from tests.faults.rig import Api, Client, script, until, until_aged
from tests.support.proxy import Proxy
from tests.support.refusal import case
from tests.support.servers import Server


def pttl(server: Server, name: str = "n") -> int:
    return int(str(server.command("PTTL", f"pawlock:{name}")))


def test_another_client_ends_it(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    for name, make in (("n", one.lock), ("r", one.rlock)):
        lease = make(name, ttl=1.5).acquire()
        token = lease.token
        two.release(name, token)
        assert valkey.command("EXISTS", f"pawlock:{name}") == 0
        until(lambda: lease.state == "lost", what="the loss, told by the next renewal")
        with pytest.raises(pawlock.NotHeld, match="no lease with this token holds it"):
            two.release(name, token)


def test_the_next_waiter_is_told_at_once(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    lease = one.lock().acquire()
    waiting = two.lock().start(20)
    until(lambda: one.inspect().queue_length == 1, what="a waiter")
    two.release("n", lease.token)
    got = waiting.result(10)
    assert got.fence > lease.fence
    got.release()


def test_its_own_client_ends_it(pair: list[Client], valkey: Server) -> None:
    lease = pair[0].rlock().acquire()
    pair[0].release("n", lease.token)
    assert lease.state == "released"
    assert valkey.command("EXISTS", "pawlock:n") == 0


def test_it_is_extended(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    lease = one.lock(ttl=20, renew=False).acquire()
    assert 39 < two.extend("n", lease.token, 40) <= 40
    assert 39_000 < pttl(valkey) <= 40_000
    assert two.extend("n", lease.token, 5) <= 5
    assert pttl(valkey) > 38_000, "a server's life is never lowered: its client believes in more"
    lease.release()
    with pytest.raises(pawlock.NotHeld, match="no lease with this token holds it"):
        two.extend("n", lease.token, 5)


def test_its_own_client_extends_it(pair: list[Client], valkey: Server) -> None:
    lease = pair[0].lock(ttl=20).acquire()
    assert 39 < pair[0].extend("n", lease.token, 40) <= 40
    assert 39 < lease.remaining() <= 40
    lease.release()


def test_what_was_detached(pair: list[Client], valkey: Server) -> None:
    one, two = pair
    ticket = one.lock(ttl=20).acquire().detach()
    assert two.extend("n", ticket, 60) > 50
    one.release("n", ticket)
    assert valkey.command("EXISTS", "pawlock:n") == 0
    for client in pair:
        with pytest.raises(pawlock.NotHeld):
            client.release("n", ticket)


def test_a_ticket_of_another_name(pair: list[Client], valkey: Server) -> None:
    ticket = pair[0].lock().acquire().detach()
    with pytest.raises(pawlock.ConfigurationError, match="the ticket is of 'n', or of another namespace"):
        pair[1].release("m", ticket)
    assert valkey.command("EXISTS", "pawlock:n") == 1


def test_what_is_no_token(pair: list[Client]) -> None:
    tokens: list[Any] = ["", "n", None, 7, b"x@h:1/t", "pawlock1.zzz"]
    for token in tokens:
        for call in (lambda: pair[0].release("n", token), lambda: pair[0].extend("n", token, 3)):
            with case(token), pytest.raises(pawlock.ConfigurationError, match=r"lease\.token|ticket"):
                call()


def test_a_foreign_key_is_left_alone(pair: list[Client], valkey: Server) -> None:
    valkey.command("SET", "pawlock:n", "x@somebody:1/else", "PX", "60000")
    with pytest.raises(pawlock.NotHeld):
        pair[0].release("n", "y@somebody:1/else")
    assert valkey.command("GET", "pawlock:n") == b"x@somebody:1/else"


def test_a_token_first_read_after_it_was_handed_on_is_nobodys(pair: list[Client], valkey: Server) -> None:
    lease = pair[0].lock().acquire()
    waiting = pair[0].lock().start(20)
    until(
        lambda: bool(next(iter(pair[0].engine.local_queues.values())).sleepers),
        what="a waiter in the client",
    )
    lease.release()
    other = waiting.result(10)
    assert pair[0].counter("handed_over") == 1
    with pytest.raises(pawlock.NotHeld, match="no lease with this token"):
        pair[1].release("n", lease.token)
    other.check()
    pair[1].release("n", other.token)
    assert valkey.command("EXISTS", "pawlock:n") == 0


def test_one_read_before_stays_the_same(pair: list[Client], valkey: Server) -> None:
    lease = pair[0].lock().acquire()
    token = lease.token
    lease.release()
    assert lease.token == token


def test_a_lease_whose_token_was_read_is_not_handed_on(valkey: Server) -> None:
    """Eight threads of one client hand a lock on; whoever keeps the token of one of them never ends another's."""
    valkey.command("FLUSHALL")
    wrong: list[str] = []
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as thief:
        old: list[str] = []

        def work(number: int) -> None:
            for turn in range(25):
                with client.lock("n", timeout=30) as lease:
                    if old and (number + turn) % 3 == 0:
                        try:
                            thief.release("n", old[-1])
                            wrong.append("ended with the token of one before")
                        except pawlock.NotHeld:
                            pass
                    if turn % 2:
                        token = lease.token
                        if valkey.command("GET", "pawlock:n") != token.encode():
                            wrong.append("the token is not the server's")
                        old.append(token)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert wrong == []
        assert len(set(old)) == len(old) == 8 * 12
        assert client._engine.reports.counters["handed_over"] > 0, "those that were not read still are"


async def test_tasks_too(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url) as client, pawlock.connect_async(valkey.url) as thief:
        old: list[str] = []

        async def work(number: int) -> None:
            for turn in range(12):
                async with client.lock("n", timeout=30) as lease:
                    if old and (number + turn) % 3 == 0:
                        with pytest.raises(pawlock.NotHeld):
                            await thief.release("n", old[-1])
                    lease.check()
                    if turn % 2:
                        old.append(lease.token)

        await asyncio.gather(*(work(number) for number in range(8)))
        assert len(set(old)) == len(old) == 8 * 6
        assert client._engine().reports.counters["handed_over"] > 0


def test_lost_replies(valkey: Server, api: Api) -> None:
    valkey.command("FLUSHALL")
    until_aged(valkey)
    with Proxy(valkey) as proxy:
        holder, other = api.connect(valkey.url), api.connect(proxy.url)
        for name in ("adopt", "leave"):
            lease = holder.lock(name, ttl=20).acquire()
            rule = proxy.kill_on_reply(script(name))
            other.release(name, lease.token)
            rule.wait()
            assert valkey.command("EXISTS", f"pawlock:{name}") == 0
        # What is behind the proxy goes before it.
        other.close()


def test_independent_masters_say_why_not() -> None:
    fresh = pawlock.RedlockOptions(fresh=True)
    with (
        Server("valkey") as a,
        Server("valkey") as b,
        Server("valkey") as c,
        pawlock.connect([a.url, b.url, c.url], redlock=fresh) as client,
        client.lock("n") as lease,
    ):
        with pytest.raises(pawlock.NotSupported, match="Redlock"):
            client.release("n", lease.token)
        with pytest.raises(pawlock.NotSupported, match="Redlock"):
            client.extend("n", lease.token, 5)
