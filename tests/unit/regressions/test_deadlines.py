"""A request that may wait less than the one before it is given up on time all the same."""

from __future__ import annotations

import time

import pytest

import pawlock
from tests.faults.rig import APIS, Api, script, teach
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.mark.parametrize("name", APIS)
def test_a_short_wait_right_after_a_long_one(valkey: Server, name: str) -> None:
    teach(valkey)
    with Api(name) as api, Proxy(valkey) as proxy:
        client = api.connect(proxy.url)
        client.inspect("warm")  # may take a second, and its timer is still set
        proxy.hold_request(script("acquire"), seconds=0.8, times=None)
        began = time.monotonic()
        with pytest.raises(pawlock.BackendUnavailable):
            client.lock("x", ttl=20.0, ticket_ttl=1.2).acquire(0.2)
        assert time.monotonic() - began < pace() * 0.7
        client.close()
