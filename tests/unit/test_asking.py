"""A node of a cluster that is asked on behalf of another one, with a script that it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pawlock.core.outcomes import Unexpected
from pawlock.core.runtime import Call
from pawlock.core.scripts import load, pack_words
from pawlock.runtimes import threads
from pawlock.transport.routing import Asking
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


def test_two_tasks_that_wait_for_replicas_do_not_share_the_answer_to_asking() -> None:
    """What both send goes out in one write, and the second one's ``INFO`` is under way when ``ASKING`` is answered."""
    with ClusterGroup(masters=1, replicas=1) as group, Api("asyncio") as api:
        client = api.connect(group.url)
        client.lock("asked", replicas=1).acquire().release()
        runtime = client.engine.runtime
        call = Call(load("tests.unit", "lone_key"), pack_words(key("asked").encode(), b"x"))
        address = runtime._route.node_of(call)

        async def both() -> Any:
            asking = runtime.send_groups({address: [Asking.of(call)]}, 1, 2.0)
            return await asyncio.gather(asking, runtime.send_groups({address: [call]}, 1, 2.0))

        for answer in api.run(both):
            assert answer == {address: [(Unexpected([b"K"]), 1)]}
