"""Ctrl-C in two steps of one block of `once`."""

from __future__ import annotations

from unittest.mock import patch

import pytest

import pawlock
from pawlock.core.coordinate import once
from pawlock.core.release import release
from tests.faults.rig import remains, until
from tests.support.servers import Server


def test_row_12_a_result_that_was_not_sent_is_not_recorded_by_an_interrupted_block(
    server: Server,
) -> None:
    """Ctrl-C in ``finish``, and once more where the block that failed ends."""
    client = pawlock.connect(server.url)
    block = client.once("n", ttl=60)
    started = block.__enter__()
    assert isinstance(started, pawlock.Started)
    with patch.object(release, "release", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        started.finish("half")
    assert started.lease, "nothing was sent"
    with patch.object(once, "end_block", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        block.__exit__(ValueError, ValueError("the body failed"), None)
    until(lambda: not remains(server), what="it is given back")
    begun = client.once("n", ttl=60).begin()
    assert isinstance(begun, pawlock.Started)
    begun.abandon()
    client.close()
