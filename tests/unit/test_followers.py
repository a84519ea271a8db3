"""Who may be served in a run, and when a waiter of one may go."""

from __future__ import annotations

import threading
from typing import Any

import pawlock
from pawlock.core.protocol.terms import Terms
from pawlock.core.state.records import Waiter
from pawlock.core.state.strict_handover import resign
from tests.support.servers import Server


def _terms(**options: Any) -> Terms:
    return Terms(pawlock.LockOptions(**options))


def test_who_may_follow() -> None:
    assert _terms(handover=0).runs
    assert not _terms(handover=1).runs
    assert not _terms(handover=0, renew=False).runs
    assert not _terms(handover=0, min_hold=0.1).runs
    assert not _terms(handover=0, lock_delay=1.0).runs
    assert not _terms(handover=0, replicas=1).runs
    # A ticket that was served stays queued a while: it must not keep others out of a short queue.
    assert not _terms(handover=0, max_waiters=3).runs


def test_a_waiter_gets_up_only_between_two_steps_of_a_hand_over(valkey: Server) -> None:
    client = pawlock.connect(valkey.url)
    engine = client._engine
    waiter = Waiter("token@h")
    engine.queues.followers[waiter.token] = waiter
    thread = threading.Thread(target=resign, args=(engine, waiter))
    with engine.guard:
        thread.start()
        thread.join(0.1)
        # Whoever has the guard may have found it, and serves it: it must still be there.
        assert engine.queues.followers == {waiter.token: waiter}
    thread.join(5)
    assert engine.queues.followers == {}
    client.close()
