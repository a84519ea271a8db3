"""Plans that found something: each is run as it was kept, and finds nothing any more."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from pawlock.core import acquire, maintenance
from pawlock.core.engine import Engine
from pawlock.core.local_queue import Waiter
from pawlock.core.outcomes import Granted
from pawlock.core.plan import Plan as LockPlan
from pawlock.core.records import Hold, valid_until
from tests.simulator import Client, Fault, Operation, Plan, network, run
from tests.simulator.mutants.of_cluster import CLIENTS
from tests.simulator.mutants.of_one import edit, wrong
from tests.simulator.node import Pair
from tests.simulator.simulation import Simulation, quiet

KEPT_IN = Path(__file__).parent / "regressions"
KEPT = sorted(KEPT_IN.glob("*.json"))


def test_a_kept_plan_breaks_nothing() -> None:
    assert len(KEPT) > 12
    with quiet():
        for path in KEPT:
            assert not run(Plan.from_json(path.read_text())).violation, path.stem


def _after_a_suspend() -> Plan:
    """A lease that nobody renews, in a process that was suspended long before the lease ends."""
    hold = Operation(0, "acquire", None, 6.0, ("blind",), "block")
    idle = Client("tasks", 1.0, False, ())
    fault = Fault("suspend", 0.2, 1.2, 0)
    locks = (("lock", "a", {"ttl": 4.0, "renew": False}),)
    return Plan(1, locks, (Client("tasks", 1.0, False, ((hold,),)), idle), (fault,), 0.0005, 0.0)


def test_a_loss_is_told_in_time_after_a_suspend() -> None:
    """The timer for the end of the lease had stood still in the suspend, and rang as much too late."""
    with quiet():
        with patch.object(maintenance, "_LOOK_AGAIN", 1e9):
            assert "was told" in run(_after_a_suspend()).violation
        assert not run(_after_a_suspend()).violation


def test_a_grant_that_a_repeated_question_finds_lives_as_long_as_it_was_asked_for() -> None:
    """Its first answer was lost: it was found with what was left of its life by then."""
    plan = Plan.from_json((KEPT_IN / "found-grant-is-raised.json").read_text())
    with quiet():
        result = run(plan)
        with patch.object(acquire, "_granted", _taken_as_found):
            assert "before the ttl of 0.3 s is over" in run(plan).violation
    scripts = [event[3] for event in result.trace if event[1] == "n1"]
    assert not result.violation
    assert "renew" in scripts


def test_the_map_of_a_cluster_is_asked_for_within_the_time_of_the_call() -> None:
    """Each node was given the time of the whole, and behind them the maintenance had the end of a lease to tell."""
    plan = Plan.from_json((KEPT_IN / "cluster-map-in-time.json").read_text())
    with quiet(), wrong(CLIENTS["every node may take its time to return the map"]()):
        assert "was told" in run(plan).violation


def test_a_lost_holder_of_once_leaves_the_queue() -> None:
    """A failover to a replica that lags had turned its grant back into a ticket."""
    plan = Plan.from_json((KEPT_IN / "once-lost-with-its-ticket.json").read_text())
    stays = edit("  remove(found.drop)\n  bury(DEAD, tomb_ms, tomb)", "  bury(DEAD, tomb_ms, tomb)")
    with quiet():
        assert "left and is there" in run(plan, stays).violation


def test_a_doubled_release_that_loses_one_reply_is_excused_of_a_shared_key_too() -> None:
    """Its sender sees one request and one reply; the token stands behind the words that wake the others."""
    plan = Plan.from_json((KEPT_IN / "doubled-release-of-a-shared-key.json").read_text())
    with quiet(), patch.object(network, "words_of_wake", return_value=0):
        assert "was freed by its own release" in run(plan).violation


def _taken_as_found(
    engine: Engine, plan: LockPlan, waiter: Waiter, granted: Granted, sent_at: float
) -> Hold | None:
    valid, now = valid_until(sent_at, granted.left_ms, plan.options.ttl_ms), engine.runtime.now()
    hold = Hold(plan.primitive, plan.options, waiter, granted.fence, valid, now)
    return hold if valid > now else None


def _excuses(*faults: Fault) -> list[float]:
    """When the judge excuses two leases at once: a master and its replica, and leases of a second."""
    hold = Operation(0, "acquire", None, 0.05, (), "block", 0.2)
    clients = tuple(Client("tasks", 1.0, False, ((hold,) * 30,)) for _ in range(2))
    locks = (("lock", "a", {"ttl": 1.0, "replicas": 1}),)
    with quiet():
        sim = Simulation(Plan(1, locks, clients, faults, 0.0005, 0.0, topology="pair"))
        found: list[float] = []

        def look(_: object) -> None:
            if sim.oracle.excused():
                found.append(round(sim.world.now, 1))

        for tenth in range(80):
            sim.world.at(tenth / 10 + 0.05, look)
        sim.run()
        for member in sim.members:
            member.kill()
    return found


def _within(times: list[float], since: float, until: float) -> bool:
    return bool(times) and since <= min(times) and max(times) <= until


def test_a_failover_is_excused_only_where_the_clocks_differ() -> None:
    """The ends of leases are times of the server's clock: where the replica's differs, the clock jumps there."""
    failover = Fault("failover_synced", 4.0, 0.1)
    back, forward = Fault("clock_back", 0.5, amount=3.4), Fault("clock_forward", 0.6, amount=3.4)
    assert _excuses(failover) == []
    # The jump itself; then nothing, however long the clock stays wrong.
    assert _within(_excuses(back), 0.5, 2.1)
    # Then the other clock, from the promotion on and for one life: not before, and no longer.
    times = _excuses(back, failover)
    assert _within([time for time in times if time < 3], 0.5, 2.1)
    assert _within([time for time in times if time >= 3], 4.3, 6.0)
    # Put right before the failover, the clocks are one again.
    assert _within(_excuses(back, forward, failover), 0.5, 2.2)


def test_a_second_failover_is_excused_only_to_a_server_that_has_no_copy_yet() -> None:
    """Of what counted with the first replica, that one, the master by now, had the only copy."""
    plan = Plan.from_json((KEPT_IN / "second-failover-before-a-copy.json").read_text())
    always = property(lambda _: True, lambda *_: None)
    with quiet(), patch.object(Pair, "whole", always, create=True):
        assert "exclusion" in run(plan).violation
    first, later = Fault("failover_lagging", 1.0, 0.1), Fault("failover_lagging", 4.0, 0.1)
    assert _excuses(first, later) == []
