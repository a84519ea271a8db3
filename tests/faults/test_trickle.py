"""A server whose replies come byte by byte: an acquisition ends in time all the same, and a loss is reported."""

from __future__ import annotations

import time

import pytest

import pawlock
from tests.faults.rig import Api, Client, until
from tests.support.pace import pace
from tests.support.proxy import Proxy

pytestmark = pytest.mark.fault


def test_an_acquisition_ends_and_a_loss_is_reported_while_replies_trickle(
    client: Client, api: Api, proxy: Proxy
) -> None:
    lost: list[float] = []
    lease = client.lock("held", ttl=1.0, on_lost=lambda _: lost.append(time.monotonic())).acquire()
    began = time.monotonic()
    proxy.trickle(0.25)
    with pytest.raises(pawlock.PawlockError):
        client.lock("other").acquire(timeout=1.0)
    assert time.monotonic() - began < pace() * 5
    until(lambda: lost, 6, "the report of the loss")
    assert lost[0] - began < 4, "it ends within its ttl of 1 s"
    assert lease.state == "lost"
    fresh = api.connect(proxy.url)
    again = time.monotonic()
    with pytest.raises(pawlock.PawlockError):
        fresh.lock("third", unavailable_after=1.0).acquire(timeout=1.0)
    assert time.monotonic() - again < pace() * 5
    proxy.trickle(0.0)
    client.lock("other").acquire().release()
