"""``code`` says what happened: why a lease was lost, and which operation found that it is not held."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import pawlock
from pawlock.embedded import ServerInUse
from pawlock.errors import PawlockError
from pawlock.model import LossReason
from tests.faults.rig import Api, Client, until
from tests.support.servers import Server

LOST = {
    "expired": "WATCHDOG_RENEWAL_FAILED",
    "unreachable": "WATCHDOG_RENEWAL_FAILED",
    "taken": "LEASE_TAKEN",
    "data_lost": "LEASE_DATA_LOST",
    "quorum": "REDLOCK_QUORUM_LOST",
    "max_hold": "MAX_HOLD_EXCEEDED",
    "closed": "LEASE_CLOSED",
}


def test_every_reason_of_a_loss_has_its_code() -> None:
    assert set(LOST) == {str(reason) for reason in LossReason}
    for reason in LossReason:
        error = pawlock.LeaseLost("it is gone", name="a", reason=reason)
        assert error.code == LOST[reason]
        again = pickle.loads(pickle.dumps(error))
        assert (again.code, again.reason, again.name, again.text) == (error.code, reason, "a", "it is gone")
    assert pawlock.LeaseLost.code == "WATCHDOG_RENEWAL_FAILED"
    assert pawlock.LeaseLost("of a newer pawlock", reason="moved").code == pawlock.LeaseLost.code


def test_a_code_survives_pickling() -> None:
    error = pawlock.NotHeld("extend 'a'", name="a", operation="extend")
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.operation, again.name) == ("EXTEND_FAILED", "extend", "a")
    assert pawlock.NotHeld("release 'a'").code == pawlock.NotHeld.code == "UNLOCK_FAILED"


def below(kind: type[PawlockError]) -> set[type[PawlockError]]:
    return {kind}.union(*(below(one) for one in kind.__subclasses__()))


def test_every_error_is_made_again_by_its_class_and_args() -> None:
    """Celery passes on the two alone, as JSON."""
    values: dict[str, Any] = {
        "message": "no",
        "name": "a",
        "holder": "host:1/t",
        "waited": 2.5,
        "position": 3,
        "outcomes": {"redis://a": "held"},
        "cycle": ("a", "b"),
        "waiters": (("host:1/t", "a", 7.5),),
        "operation": "extend",
        "reason": LossReason.DATA_LOST,
        "fence": 7,
        "acknowledged": 1,
        "wanted": 2,
        "limit": 2,
        "permits": 3,
        "clients": 4,
    }
    public = [
        kind for kind in below(PawlockError) if kind.__module__ in {"pawlock.errors", ServerInUse.__module__}
    ]
    assert len(public) > 20
    for kind in public:
        error = kind(**{name: values[name] for name in inspect.signature(kind).parameters})
        again = kind(*json.loads(json.dumps(error.args)))
        pickled = pickle.loads(pickle.dumps(error))
        for one in (again, pickled):
            assert (type(one), vars(one), str(one)) == (kind, vars(error), str(error))
        assert repr(error) == f"{kind.__name__}('no')"


class Closed(pawlock.NotAcquired):
    """As a program may derive one."""

    def __init__(self, shop: int) -> None:
        super().__init__(f"shop {shop} is closed", name="shop")
        self.shop = shop


class Plain(PawlockError):
    def __init__(self) -> None:
        Exception.__init__(self)


def test_an_error_of_a_program_may_take_what_it_likes() -> None:
    error = Closed(7)
    again = pickle.loads(pickle.dumps(error))
    assert (vars(again), str(again), repr(again)) == (vars(error), str(error), "Closed('shop 7 is closed')")
    assert (str(Plain()), repr(copy.copy(Plain()))) == ("[PAWLOCK_ERROR]", "Plain('')")


def test_the_codes_of_different_errors_differ() -> None:
    codes = {kind.__name__: kind.code for kind in below(PawlockError) if kind.__module__ == "pawlock.errors"}
    assert len(set(codes.values())) == len(codes)
    more = (set(LOST.values()) - {pawlock.LeaseLost.code}) | {
        pawlock.NotHeld(operation=word).code for word in ("extend", "downgrade", "detach", "adopt", "lead")
    }
    assert len(more) == 10
    assert not more & set(codes.values())


def failed(api: Api, action: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(pawlock.NotHeld) as caught:
        api.run(action)
    return caught.value.operation, caught.value.code


def test_what_was_tried_is_in_the_code(api: Api, pair: list[Client]) -> None:
    client: Any = pair[0].raw
    lease = api.run(client.lock("a").acquire)
    api.run(lease.release)
    assert failed(api, lease.release) == ("release", "UNLOCK_FAILED")
    assert failed(api, lambda: lease.extend(5)) == ("extend", "EXTEND_FAILED")

    async def detach() -> str:
        return str(lease.detach())

    assert failed(api, detach if api.name == "asyncio" else lease.detach) == ("detach", "DETACH_FAILED")
    writer = api.run(client.rwlock("b").write.acquire)
    api.run(writer.downgrade)
    assert failed(api, writer.downgrade) == ("downgrade", "DOWNGRADE_FAILED")
    api.run(writer.release)
    many = api.run(client.multi_lock(["c", "d"]).acquire)
    api.run(many.release)
    assert failed(api, many.release) == ("release", "UNLOCK_FAILED")
    assert failed(api, lambda: many.extend(5)) == ("extend", "EXTEND_FAILED")
    assert failed(api, client.election("e").resign) == ("lead", "NOT_THE_LEADER")


def test_a_wait_of_nothing_reads_as_one(api: Api, pair: list[Client]) -> None:
    """Not as "2.83e-05 s"."""
    one, other = (client.raw for client in pair)
    held = api.run(one.lock("a").acquire)
    for what in (other.lock("a"), other.multi_lock(["a", "b"])):
        with pytest.raises(pawlock.AcquireTimeout, match=r"still held after [\d.]+ s") as caught:
            api.run(partial(what.acquire, timeout=0))
        assert caught.value.waited < 5
    api.run(held.release)


def test_a_ticket_that_is_used_twice(api: Api, pair: list[Client]) -> None:
    client: Any = pair[0].raw
    lease = api.run(client.lock("a").acquire)

    async def detach() -> str:
        return str(lease.detach())

    ticket = api.run(detach if api.name == "asyncio" else lease.detach)
    second = api.run(lambda: client.adopt(ticket))
    assert failed(api, lambda: client.adopt(ticket)) == ("adopt", "ADOPT_FAILED")
    api.run(second.release)


def test_the_service_says_what_was_tried(api: Api, pair: list[Client]) -> None:
    service: Any = pair[0].raw.service()
    assert failed(api, lambda: service.renew("a", "nobody")) == ("extend", "EXTEND_FAILED")
    assert failed(api, lambda: service.release("a", "nobody")) == ("release", "UNLOCK_FAILED")


def test_the_code_of_a_real_loss(api: Api, pair: list[Client], valkey: Server) -> None:
    client: Any = pair[0].raw
    lease = api.run(client.lock("taken", ttl=3.0, renew=0.3).acquire)
    valkey.command("SET", "pawlock:taken", "operator@desk:1/sh", "PX", "60000")
    longest = api.run(client.lock("long", ttl=0.9, max_hold=0.3).acquire)
    until(lambda: lease.lost and longest.lost)
    for lost, code in ((lease, "LEASE_TAKEN"), (longest, "MAX_HOLD_EXCEEDED")):
        with pytest.raises(pawlock.LeaseLost) as caught:
            lost.check()
        assert caught.value.code == code
    with pytest.raises(pawlock.NotHeld) as gone:
        api.run(lease.release)
    assert str(gone.value).count("[") == 1, "one code, also where it quotes the loss"
    released = api.run(client.lock("b").acquire)
    api.run(released.release)
    with pytest.raises(pawlock.LeaseLost) as caught:
        released.check()
    assert caught.value.code == "LEASE_CLOSED"
