"""Every wrong protocol that must be found, by the name under which it is known, and the mutants that stand for it.

``PUBLISHED`` are the designs that other libraries had or have; ``HOLES`` those of the first draft of pawlock's protocol.
"""

from __future__ import annotations

__all__ = ["ELSEWHERE", "HOLES", "PUBLISHED"]

PUBLISHED: dict[str, str] = {
    "no-compare delete": "leave does not compare",
    "deadline from the reply": "validity from the reply",
    "drift omitted": "no drift",
    "no look at the elapsed time after the quorum": "no look at the time after the quorum",
    "quorum of N/2": "half of the masters are a quorum",
    "release only the nodes that acknowledged": "",
    "renew creates the key again": "renew takes a name that is free",
    "the watchdog swallows the loss": "the watchdog swallows a no",
    "the loss is reported after the renewal returned": "the loss is reported after the renewal returns",
    "a retry with a new token": "a retry takes a new token",
    "the fence is raised outside the script": "a grant mints no fence",
    "the fence is reset on expiry": "the fence ends with the lease",
    "the fence is raised on re-entry": "a resend mints another fence",
    "Redlock fence by the maximum alone": "the fence of a majority is not written back",
    "readers share one ttl": "all readers share one ttl",
    "readers are counted": "readers are a number",
    "a renewal refreshes all readers": "renew makes every reader live",
    "a writer is taken in two steps": "permits: a writer needs only no other writer",
    "a fair queue that nobody reaps": "dead tickets stay at the head",
    "a fair queue reaped by the clients' clocks": "tickets are dropped by the clock of who asks",
    "a waiter that is not removed on cancel": "leave keeps the ticket",
    "notified before the delete": "the waiter is notified before the name is free",
    "no further try after the subscription": "a waiter does not ask after it connects anew",
    "no bound for polling": "a waiter trusts its message alone",
    "a semaphore as a counter": "permits are a number without an end",
    "the wait is used as ttl": "the wait is sent as ttl",
    "whole seconds, rounded up": "validity in whole seconds",
    "the client's wall clock": "the wall clock",
    "clean-up on another connection without a tombstone": "an undo sets no tombstone",
    "cancel without clean-up": "a cancelled acquire leaves its token",
    "the forked child releases": "",
    "unknown taken for not held": "unknown is taken for busy",
    "unknown taken for held": "unknown is taken for held",
    "a restart without quarantine": "a master that restarted counts at once",
    "a release that needs memory": "a release writes before it deletes",
    "a multi-lock as valid as its last member": "a multi-lock is as good as its last name",
}
"""One of them stands in two lines: an unknown outcome that is taken for either of the known ones."""

HOLES: dict[str, str] = {
    "S1 a late renewal shortens a lease": "renew lowers an expiry",
    "S2 a late message revives a dead grant": "S2 a late message revives a dead grant",
    "S3 blocks of fences overlap": "last is the start of the block",
    "S4 a write-back counts on any master": "S4 a write-back counts on any master",
    "S5 a writer is a weight": "permits: a writer is a weight",
    "S6 a late copy changes the mode": "permits: a late copy changes the mode",
    "S7 a grant counts before the replica has it": "S7 a grant counts before the replica has it",
    "S8 a release passes its waiters by": "S8 a release passes its waiters by",
    "S9 local owners share what one of them must have": "S9 local owners share a fence",
    "O1 a late acquire after its undo": "acquire ignores the tombstone",
    "O2 a renewal creates a ticket": "renew creates a ticket",
    "O3 a hand-off gives the full ttl": "a hand-off raises to the full ttl",
    "O4 a resent release is called lost": "O4 a resent release is called lost",
    "O5 a failover brings a ticket back": "O5 any answer to a renewal is a yes",
}

ELSEWHERE: dict[str, str] = {
    "the forked child releases": (
        "tests/unit/test_forgetful_child.py::test_a_child_that_forgets_nothing_ends_its_parents_lease"
    ),
    "release only the nodes that acknowledged": (
        "tests/contract/redlock/test_late_votes.py::"
        "test_a_vote_that_comes_after_a_release_by_another_thread_does_not_count"
    ),
}
"""What needs a real process, or real connections: the test that finds it, as path::function."""
