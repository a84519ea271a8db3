"""From a server's words to the error that a user sees: the table, and that none is missing."""

from __future__ import annotations

import pickle
from typing import cast

import pytest

import pawl
from pawl.core.protocol.faults import classify, is_transient, to_error
from pawl.core.protocol.runtime import Fault, FaultKind
from pawl.core.state.observers import Observer, Observers

REPLIES: list[tuple[str, FaultKind, type[pawl.PawlError]]] = [
    ("LOADING Redis is loading the dataset in memory", FaultKind.NOT_READY, pawl.BackendUnavailable),
    ("MASTERDOWN Link with MASTER is down", FaultKind.NOT_READY, pawl.BackendUnavailable),
    ("BUSY Redis is busy running a script.", FaultKind.NOT_READY, pawl.BackendUnavailable),
    ("CLUSTERDOWN The cluster is down", FaultKind.NOT_READY, pawl.BackendUnavailable),
    ("TRYAGAIN Multiple keys request during rehashing of slot", FaultKind.NOT_READY, pawl.BackendUnavailable),
    ("UNKILLABLE Sorry the script already executed", FaultKind.NOT_READY, pawl.BackendUnavailable),
    ("ERR max number of clients reached", FaultKind.NOT_READY, pawl.BackendUnavailable),
    ("READONLY You can't write against a read only replica.", FaultKind.READ_ONLY, pawl.BackendReadOnly),
    ("NOREPLICAS Not enough good replicas to write.", FaultKind.READ_ONLY, pawl.BackendReadOnly),
    ("MISCONF Redis is configured to save RDB snapshots", FaultKind.READ_ONLY, pawl.BackendReadOnly),
    (
        "OOM command not allowed when used memory > 'maxmemory'.",
        FaultKind.OUT_OF_MEMORY,
        pawl.BackendOutOfMemory,
    ),
    ("NOPERM User x has no permissions to run 'evalsha'", FaultKind.DENIED, pawl.BackendDenied),
    ("NOAUTH Authentication required.", FaultKind.DENIED, pawl.BackendDenied),
    ("WRONGPASS invalid username-password pair", FaultKind.DENIED, pawl.BackendDenied),
    ("DENIED Redis is running in protected mode", FaultKind.DENIED, pawl.BackendDenied),
    ("-DENIED: no", FaultKind.SCRIPT, pawl.ScriptError),
    ("ERR invalid password", FaultKind.DENIED, pawl.BackendDenied),
    ("WRONGTYPE Operation against a key", FaultKind.WRONG_KEY, pawl.WrongKey),
    ("NOPROTO unsupported protocol version", FaultKind.UNSUPPORTED, pawl.NotSupported),
    (
        "ERR Error running script (call to f_x): @user_script:1: WRONGTYPE Op",
        FaultKind.WRONG_KEY,
        pawl.WrongKey,
    ),
    (
        "ERR Error running script: @user_script: 12: -OOM command not",
        FaultKind.OUT_OF_MEMORY,
        pawl.BackendOutOfMemory,
    ),
    ("ERR user_script:3: attempt to compare nil", FaultKind.SCRIPT, pawl.ScriptError),
    ("PAWLWIRE this name is used by pawl wire version 9", FaultKind.SCRIPT, pawl.ScriptError),
    ("", FaultKind.SCRIPT, pawl.ScriptError),
]


@pytest.mark.parametrize(
    "place",
    [
        "{} script: " + 40 * "a" + ", on @user_script:31.",
        "ERR Error running script (call to f_x): @user_script:1: {}",
    ],
    ids=["Redis 7", "Redis 6"],
)
@pytest.mark.parametrize(
    "refusal", ["WRONGTYPE wrong kind of value", "OOM command not allowed", "READONLY a replica"]
)
def test_a_refusal_is_told_without_its_place_in_a_script(place: str, refusal: str) -> None:
    told = to_error(classify(place.format(refusal)), "order", "acquire lock")
    assert told.text.endswith(f": {refusal}")


def test_the_error_of_a_script_keeps_its_place() -> None:
    text = f"ERR attempt to compare nil script: {40 * 'a'}, on @user_script:31."
    assert text in str(to_error(classify(text), "order", "acquire lock"))


@pytest.mark.parametrize(("text", "kind", "error"), REPLIES, ids=[row[0][:30] for row in REPLIES])
def test_what_a_server_says(text: str, kind: FaultKind, error: type[pawl.PawlError]) -> None:
    fault = classify(text)
    assert fault.kind is kind
    assert not fault.maybe_applied, "the server refused: nothing was done"
    told = to_error(fault, "order", "acquire lock")
    assert type(told) is error
    assert told.name == "order"
    assert "acquire lock 'order'" in str(told)
    assert text in str(told), "the server's words are not lost"
    assert str(pickle.loads(pickle.dumps(told))) == str(told)


@pytest.mark.parametrize("kind", FaultKind)
def test_each_fault_has_an_error_of_its_own_words(kind: FaultKind) -> None:
    told = to_error(Fault(kind, "words"), None, "renew")
    assert type(told) is not pawl.BackendError, "no kind is left to the default"
    assert str(told).startswith("renew: ")
    assert str(told).endswith(f": words [{told.code}]")


def test_which_faults_pass() -> None:
    waiting_helps = {FaultKind.UNREACHABLE, FaultKind.UNANSWERED, FaultKind.NOT_READY, FaultKind.READ_ONLY}
    assert {kind for kind in FaultKind if is_transient(kind)} == waiting_helps


def test_held_by_another_is_never_a_failure_of_the_server() -> None:
    assert not issubclass(pawl.NotAcquired, pawl.BackendError)
    assert not issubclass(pawl.BackendError, pawl.NotAcquired)


@pytest.mark.parametrize(
    "failure", [pawl.QuorumNotReached, pawl.NotReplicated, pawl.ClientClosed, pawl.ClockDrift]
)
def test_not_acquired_catches_no_failure(failure: type[pawl.PawlError]) -> None:
    assert not issubclass(failure, pawl.NotAcquired), "it says nothing about another owner"


@pytest.mark.parametrize("missing", [pawl.QuorumNotReached, pawl.NotReplicated])
def test_missing_votes_and_replicas_are_faults_of_the_servers(missing: type[pawl.PawlError]) -> None:
    assert issubclass(missing, pawl.BackendError)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (pawl.QuorumNotReached(), "error"),
        (pawl.NotReplicated(), "error"),
        (pawl.ClientClosed(), "closed"),
        (pawl.AcquireTimeout(), "timeout"),
        (pawl.QueueFull(), "refused"),
    ],
)
def test_metrics_count_a_failure_as_an_error(error: pawl.PawlError, outcome: str) -> None:
    class Heard:
        def refused(self, kind: str, name: str, *, waited: float, outcome: str) -> None:
            heard.append((kind, name, waited, outcome))

    heard: list[tuple[str, str, float, str]] = []
    observers = Observers(lambda: 3.0)
    observers.members.append(cast("Observer", Heard()))
    observers.refused("lock", "x", 1.0, error)
    assert heard == [("lock", "x", 2.0, outcome)]
