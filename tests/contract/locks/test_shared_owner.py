"""Holds of an explicit owner, in several clients: each lease says how many there were at its grant."""

from __future__ import annotations

import pytest

from tests.faults.rig import Api
from tests.support.servers import Server

pytestmark = pytest.mark.slow


def test_each_hold_of_an_owner_counts_those_before(valkey: Server, api: Api) -> None:
    one, two = (api.connect(valkey.url).raw for _ in range(2))
    for client in (one, two):
        # So that the first request of each is answered on a connection that is there.
        api.run(lambda client=client: client.inspect("n"))  # type: ignore[misc]
    leases = [api.run(client.rlock("n", owner="job").acquire) for client in (one, two, one)]
    assert [lease.count for lease in leases] == [1, 2, 3]
    for lease in leases:
        api.run(lease.release)
