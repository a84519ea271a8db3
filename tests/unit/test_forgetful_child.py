"""The wrong protocol that the tests of forks find."""

from __future__ import annotations

import os

import pytest

import pawlock
from pawlock.core.engine import Engine
from tests.contract.edges.helpers import holder_of, in_child, outcome
from tests.support.servers import Server

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def test_a_child_that_forgets_nothing_ends_its_parents_lease(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "after_fork", lambda _: None)
    valkey.command("FLUSHALL")
    client = pawlock.connect(valkey.url)
    lease = client.lock("taken").acquire()
    assert in_child(lambda: outcome(lease.release)) == "done"
    assert holder_of(valkey, "taken") is None
    with pytest.raises(pawlock.NotHeld):
        lease.release()
    client.close()
