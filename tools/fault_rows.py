"""Write the table of the faults that pawlock is tested against, from the tests themselves.

A test shows a row when its name begins with `test_row_N_`, or `test_row_N_and_M_` for two. What shows a row under
another name is listed here, and must exist. `python tools/fault_rows.py` writes docs/reference/faults.md anew; a test
holds the page to what this would write.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "faults.md"
TEST = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
ROW = re.compile(r"test_row_(\d+)(?:_and_(\d+))?_")

CHAPTERS = {
    1: "Requests, replies, cancellation",
    17: "Time and processes",
    34: "The server and its settings",
    58: "Waiting",
    68: "Readers, writers, permits",
    74: "Several masters, several names",
    80: "The service, and versions",
}
"""The first row of each chapter."""

ROWS = {
    1: "The server grants, and the reply is lost",
    2: "The connection ends after the grant",
    3: "The client library repeats requests by itself",
    4: "A re-entrant acquire is sent twice",
    5: "The reply to a release is lost",
    6: "A release never arrives",
    7: "An acquire arrives after its caller has gone",
    8: "A request arrives twice, or after a later one",
    9: "A grant arrives after its caller's time",
    10: "A task is cancelled while it acquires",
    11: "A task is cancelled while it releases",
    12: "Ctrl-C or a signal while a thread acquires or releases",
    13: "A cancelled request leaves its reply in the connection",
    14: "A timeout around acquire ends in the instant of the grant",
    15: "The loop or the interpreter ends while a lease is held",
    16: "A lease is dropped without release",
    17: "The holder is stopped for longer than its ttl",
    18: "The thread that renews gets no time",
    19: "Blocking code keeps the event loop busy",
    20: "The deadline passes while a renewal is on its way",
    21: "One renewal fails, and the next would not",
    22: "A renewal finds that another client holds the lock",
    23: "A renewal meets the release",
    24: "The client's wall clock jumps",
    25: "The machine is suspended",
    26: "The server's wall clock jumps forward",
    27: "The server's wall clock jumps back",
    28: "Clocks run at different rates",
    29: "The holder forks",
    30: "Several threads or tasks share one lock object",
    31: "Ids of processes and threads come again",
    32: "The holder is killed",
    33: "Re-entry into a lease that has ended",
    34: "The server forgets its scripts",
    35: "The master becomes a replica",
    36: "A failover loses the lock",
    37: "Fewer replicas acknowledge than were asked for",
    38: "The server refuses writes for lack of replicas, or after a failed snapshot",
    39: "The server is loading, busy, or its cluster is down",
    40: "The server has no memory left",
    41: "The server evicts the lock",
    42: "Somebody deletes the lock, or everything",
    43: "The server restarts without its data",
    44: "The server restarts without the last second of its data",
    45: "The key holds something that is not pawlock's",
    46: "The key has no expiry",
    47: "The fence is lost",
    48: "The address is a replica's",
    49: "The server pauses its clients",
    50: "The server ends connections, or takes no more",
    51: "The user may not, or its password has changed",
    52: "A slot of the cluster has moved",
    53: "A slot of the cluster is half moved",
    54: "Keys of one operation lie in different slots",
    55: "A script touches a key that it does not declare",
    56: "The server answers more slowly than the ttl",
    57: "Clients with other protocols and settings",
    58: "The connection that brings wake-ups breaks",
    59: "The server drops a listener that does not read",
    60: "The release comes between the try and the listening",
    61: "A lease expires, and nobody announces it",
    62: "One release, many waiters",
    63: "The waiter that is woken has just died",
    64: "The head of the queue is dead, and so are those behind it",
    65: "A living waiter is taken for dead",
    66: "A waiter gives up in the instant of its grant",
    67: "The queue grows without bound",
    68: "A reader crashes while others read",
    69: "Readers come without end while a writer waits",
    70: "A writer becomes a reader, a reader a writer",
    71: "A holder of permits crashes",
    72: "Clients disagree on how many permits there are",
    73: "A permit is released twice",
    74: "A minority of masters is down or slow",
    75: "No client gets a majority",
    76: "A master comes back empty",
    77: "A renewal reaches a minority only",
    78: "Two of the masters are one",
    79: "Some of several names are not to be had",
    80: "An instance of the service dies",
    81: "A request to the service is repeated",
    82: "The client of the service goes while it waits",
    83: "Two wire versions on one server",
}
"""What goes wrong."""

ALSO = {
    36: ("topology/test_sentinel.py::test_what_a_failover_lost_is_told",),
    37: (
        "topology/test_replicas.py::test_too_few_replicas_are_told_at_once",
        "topology/test_replicas.py::test_a_lagging_replica_refuses_the_grant",
    ),
    52: (
        "topology/test_cluster.py::test_a_slot_that_moved_is_followed",
        "topology/test_cluster.py::test_an_asked_node_runs_a_script_it_never_saw",
    ),
    53: ("topology/test_cluster.py::test_a_slot_on_its_way_is_waited_for",),
    54: (
        "topology/test_cluster.py::test_a_key_with_braces_keeps_its_helpers_beside_it",
        "unit/test_names.py::test_helper_keys_belong_to_one_name",
    ),
    55: (
        "scripts/test_refusals.py::test_scripts_touch_only_the_keys_they_declare",
        # The node in memory fails at any key that is not declared, of whatever script.
        "testing/test_sim.py::test_every_primitive_of_threads",
    ),
    68: (
        "permits/test_rwlock.py::test_a_dead_reader_frees_only_itself",
        "workloads/test_crashes.py::test_a_few_crashes_break_nothing",
    ),
    69: (
        "permits/test_rwlock.py::test_a_writer_that_waits_stops_later_readers_and_those_behind_it_enter_together",
    ),
    70: (
        "permits/test_rwlock.py::test_downgrade_lets_readers_in_and_nobody_between",
        "permits/test_rwlock.py::test_an_upgrade_is_refused_at_once",
    ),
    71: (
        "permits/test_semaphore.py::test_a_lease_that_runs_out_gives_its_permits_back",
        "workloads/test_crashes.py::test_many_crashes_break_nothing",
    ),
    72: (
        "permits/test_semaphore.py::test_the_limit_is_the_servers",
        "permits/test_semaphore.py::test_lowering_takes_nothing_and_blocks",
    ),
    73: ("permits/test_semaphore.py::test_a_second_release_frees_nothing",),
    78: (
        "redlock/test_construction.py::test_one_server_under_two_addresses_is_found_out",
        "redlock/test_construction.py::test_a_replica_is_no_node",
    ),
    79: (
        "locks/test_multi.py::test_waiting_takes_them_in_order_and_leaves_nothing",
        "locks/test_multi.py::test_one_order_for_all_knows_no_deadlock",
    ),
    80: ("service/test_retries.py::test_a_waiter_of_a_killed_instance_goes_on_at_another_in_its_place",),
    81: ("service/test_retries.py::test_a_second_instance_answers_a_repeated_request_the_same",),
    82: ("service/test_leases.py::test_a_waiter_whose_client_goes_away_leaves_the_queue_at_once",),
}
"""Tests of a row whose names tell of something else first, below tests/."""

REASONS: dict[int, str] = {}
"""Why a row has no test, where that is known."""

HEAD = """# Faults

What can go wrong between a program, its locks and their servers, and the tests that do it on purpose, on a real server
wherever a server has a part in it. **No test yet** says that no test is known to show the row, not that pawlock fails it.
The simulator draws many of these faults at random beside them, see [The simulator](../concepts/simulation.md).

This page is written by `tools/fault_rows.py` from the names of the tests. It has {shown} of {all} rows with a test.
"""


def every_test() -> list[str]:
    """List the tests of the project, as path below tests/ and name."""
    return [
        f"{path.relative_to(ROOT / 'tests').as_posix()}::{name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in TEST.findall(path.read_text(encoding="utf-8"))
    ]


def tests_of_rows() -> dict[int, list[str]]:
    """Find the tests of each row.

    Raises:
        ValueError: A test names a row that there is not, or a test listed here does not exist.
    """
    known = every_test()
    found: dict[int, list[str]] = defaultdict(list)
    for test in known:
        if match := ROW.match(test.partition("::")[2]):
            for row in filter(None, match.groups()):
                found[int(row)].append(test)
    for row, others in ALSO.items():
        found[row] += [test for test in others if test not in found[row]]
        if missing := sorted(set(others) - set(known)):
            raise ValueError(f"row {row} is said to be shown by {', '.join(missing)}: no such test")
    if odd := sorted(set(found) - set(ROWS)):
        raise ValueError(f"tests name rows that there are not: {odd}")
    return {row: list(dict.fromkeys(tests)) for row, tests in found.items()}


def shown(row: int, tests: list[str]) -> str:
    """Write what stands beside a row."""
    if not tests:
        return f"**no test yet**: {REASONS[row]}" if row in REASONS else "**no test yet**"
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        path, _, name = test.partition("::")
        files[path].append(f"`{name}`")
    return "<br>".join(f"{path}: {', '.join(names)}" for path, names in files.items())


def page() -> str:
    """Write the page."""
    found = tests_of_rows()
    lines = [HEAD.strip().format(shown=sum(1 for row in ROWS if found.get(row)), all=len(ROWS))]
    for row, fault in ROWS.items():
        if row in CHAPTERS:
            lines += [f"\n## {CHAPTERS[row]}\n", "| Row | What goes wrong | Tests |", "| --- | --- | --- |"]
        lines.append(f"| {row} | {fault} | {shown(row, found.get(row, []))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is what the tests say\n")
