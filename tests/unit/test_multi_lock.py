"""What a lease of several names keeps behind the scenes."""

from __future__ import annotations

import pawlock
from pawlock.core.base_lease import record_of
from tests.support.servers import Server


def test_a_member_that_is_held_on_keeps_nothing_of_a_lease_that_ended(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client:
        multi = client.multi_lock([client.rlock("a"), "b"])
        with client.rlock("a") as outer:
            for _ in range(5):
                with multi:
                    pass
            assert record_of(outer).hold.watchers == []
