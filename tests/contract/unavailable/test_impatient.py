"""Callers that wait for a few milliseconds, before a server that takes longer and answers: it is not down."""

from __future__ import annotations

import pytest

import pawlock
from tests.faults.rig import APIS, Api
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.mark.parametrize("api", APIS)
def test_an_impatient_caller_is_no_sign_of_an_outage(
    valkey: Server, api: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Api(api) as chosen, Proxy(valkey) as proxy:
        client = chosen.connect(proxy.url)
        client.lock("warm").acquire().release()
        proxy.delay(replies=0.05)
        for _ in range(2):
            with pytest.raises((pawlock.BackendUnavailable, pawlock.AcquireTimeout)):
                client.lock("n", ttl=5.0).acquire(timeout=0.002)
        assert client.counter("outages") == 0
        client.lock("another").acquire(timeout=10.0).release()
        assert "not responding" not in caplog.text
        proxy.delay(replies=0.0)
