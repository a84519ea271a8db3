"""A node of a cluster that is asked on behalf of another one, with a script that it does not know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pawlock.core.outcomes import Unexpected
from pawlock.core.runtime import Call
from pawlock.core.scripts import load, pack_words
from pawlock.runtimes import threads
from tests.faults.rig import APIS, Api, key
from tests.support.groups import ClusterGroup


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    with Api(request.param) as api:
        yield api


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterGroup]:
    with ClusterGroup() as group:
        yield group


@pytest.mark.slow
def test_an_asked_node_runs_a_script_it_never_saw(cluster: ClusterGroup, api: Api) -> None:
    """ASK: ASKING and the script in one go, on a node that does not know it yet."""
    client = api.connect(cluster.url)
    slot = cluster.slot_of(key("asked"))
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not source)
    client.lock("asked").acquire().release()
    call = Call(load("tests.unit", "lone_key"), pack_words(key("asked").encode(), b"x"))
    runtime = api.run(lambda: api.engine(client.raw)).runtime
    cluster.begin_move(slot, source, target)
    try:
        target.command("SCRIPT", "FLUSH")
        cluster.move_keys(slot, source, target)
        # The runtime of threads never suspends.
        reply = api.run(
            lambda: runtime.call(call, 2.0) if api.is_async else threads.run(runtime.call(call, 2.0))
        )
        assert reply == Unexpected([b"K"]), "a script that is none of pawlock's"
    finally:
        cluster.move_keys(slot, source, target)
        cluster.end_move(slot, source, target)
    assert target.command("GETDEL", key("asked")) == b"x"
