"""From a server's words to the error that a user sees: the table, and that none is missing."""

from __future__ import annotations

import pickle
from typing import cast

import pawlock
from pawlock.core.faults import classify, is_transient, to_error
from pawlock.core.observers import Observer, Observers
from pawlock.core.runtime import Fault, FaultKind
from pawlock.transport.connect import fault_of
from tests.support.refusal import case

REPLIES: list[tuple[str, FaultKind, type[pawlock.PawlockError]]] = [
    ("LOADING Redis is loading the dataset in memory", FaultKind.NOT_READY, pawlock.BackendUnavailable),
    ("MASTERDOWN Link with MASTER is down", FaultKind.NOT_READY, pawlock.BackendUnavailable),
    ("BUSY Redis is busy running a script.", FaultKind.NOT_READY, pawlock.BackendUnavailable),
    ("CLUSTERDOWN The cluster is down", FaultKind.NOT_READY, pawlock.BackendUnavailable),
    (
        "TRYAGAIN Multiple keys request during rehashing of slot",
        FaultKind.NOT_READY,
        pawlock.BackendUnavailable,
    ),
    ("UNKILLABLE Sorry the script already executed", FaultKind.NOT_READY, pawlock.BackendUnavailable),
    ("ERR max number of clients reached", FaultKind.NOT_READY, pawlock.BackendUnavailable),
    ("READONLY You can't write against a read only replica.", FaultKind.READ_ONLY, pawlock.BackendReadOnly),
    ("NOREPLICAS Not enough good replicas to write.", FaultKind.READ_ONLY, pawlock.BackendReadOnly),
    ("MISCONF Redis is configured to save RDB snapshots", FaultKind.READ_ONLY, pawlock.BackendReadOnly),
    (
        "OOM command not allowed when used memory > 'maxmemory'.",
        FaultKind.OUT_OF_MEMORY,
        pawlock.BackendOutOfMemory,
    ),
    ("NOPERM User x has no permissions to run 'evalsha'", FaultKind.DENIED, pawlock.BackendDenied),
    ("NOAUTH Authentication required.", FaultKind.DENIED, pawlock.BackendDenied),
    ("WRONGPASS invalid username-password pair", FaultKind.DENIED, pawlock.BackendDenied),
    ("DENIED Redis is running in protected mode", FaultKind.DENIED, pawlock.BackendDenied),
    ("-DENIED: no", FaultKind.SCRIPT, pawlock.ScriptError),
    ("ERR invalid password", FaultKind.DENIED, pawlock.BackendDenied),
    ("WRONGTYPE Operation against a key", FaultKind.WRONG_KEY, pawlock.WrongKey),
    ("NOPROTO unsupported protocol version", FaultKind.UNSUPPORTED, pawlock.NotSupported),
    (
        "ERR Error running script (call to f_x): @user_script:1: WRONGTYPE Op",
        FaultKind.WRONG_KEY,
        pawlock.WrongKey,
    ),
    (
        "ERR Error running script: @user_script: 12: -OOM command not",
        FaultKind.OUT_OF_MEMORY,
        pawlock.BackendOutOfMemory,
    ),
    ("ERR user_script:3: attempt to compare nil", FaultKind.SCRIPT, pawlock.ScriptError),
    ("PAWLOCKWIRE this name is used by pawlock wire version 9", FaultKind.SCRIPT, pawlock.ScriptError),
    ("", FaultKind.SCRIPT, pawlock.ScriptError),
]


def test_a_refusal_is_told_without_its_place_in_a_script() -> None:
    cases: list[str] = [
        "WRONGTYPE wrong kind of value",
        "OOM command not allowed",
        "READONLY a replica",
    ]
    more: list[str] = [
        # Redis 7
        "{} script: " + 40 * "a" + ", on @user_script:31.",
        # Redis 6
        "ERR Error running script (call to f_x): @user_script:1: {}",
    ]
    for refusal in cases:
        for place in more:
            with case(refusal, place):
                told = to_error(classify(place.format(refusal)), "order", "acquire lock")
                assert told.text.endswith(f": {refusal}")


def test_the_error_of_a_script_keeps_its_place() -> None:
    text = f"ERR attempt to compare nil script: {40 * 'a'}, on @user_script:31."
    assert text in str(to_error(classify(text), "order", "acquire lock"))


SCRIPT = b"local a = 1\nlocal now = redis.call('TIME')\nreturn now\n"
REFUSALS: list[tuple[str, str]] = [
    # Redis 6.2
    (
        ("ERR Error running script (call to f_ab12): @user_script:2: @user_script: 2: "
        "The user executing the script can't run this command or subcommand"),
        "can't run TIME",
    ),
    # Redis 7.0
    (f"ERR The user executing the script can't run this command or subcommand script: {40 * 'a'}, on @user_script:2.",
     "can't run TIME"),
    # Later ones, and Valkey
    (
        ("ERR ACL failure in script: User app has no permissions to run the 'time' command "
        f"script: {40 * 'a'}, on @user_script:2."),
        "'time' command",
    ),
    ("NOPERM User app has no permissions to run the 'evalsha' command", "'evalsha' command"),
    ("NOPERM this user has no permissions to run the 'evalsha' command or its subcommand", "'evalsha' command"),
    ("ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
     "at least one of the keys"),
    ("NOPERM this user has no permissions to access one of the keys used as arguments", "one of the keys"),
    ("ERR The user executing the script can't publish to the channel mentioned in the command", "the channel"),
]  # fmt: skip
UNKNOWN: list[tuple[str, str]] = [
    (
        "ERR unknown command 'EVALSHA', with args beginning with: 'ab12' '3' 'pawlock:x' ",
        "does not know EVALSHA",
    ),
    (
        "ERR unknown command `EVAL`, with args beginning with: `local secret_source = 1`, ",
        "does not know EVAL ",
    ),
    ("ERR Unknown Redis command called from script script: ab12, on @user_script:2.", "does not know TIME"),
    (
        (
            "ERR Error running script (call to f_ab): @user_script:2: @user_script: 2: "
            "Unknown Redis command called from Lua script"
        ),
        "does not know TIME",
    ),
    ("ERR unknown command", "does not know a command of the script"),
]


def test_a_refused_command_is_named_in_the_words_of_each_version() -> None:
    for text, named in REFUSALS:
        with case(text):
            told = to_error(classify(text, SCRIPT), "order", "acquire lock")
            assert type(told) is pawlock.BackendDenied
            assert named in str(told)
            assert "user_script" not in str(told)


def test_a_line_that_the_script_does_not_have_names_nothing() -> None:
    for source in (b"", SCRIPT):
        told = classify(
            "ERR The user executing the script can't run this command script: a, on @user_script:99.", source
        )
        assert told.kind is FaultKind.DENIED
        assert "can't run a command of the script" in told.text


def test_a_command_that_the_server_does_not_know_is_named_without_its_arguments() -> None:
    for text, named in UNKNOWN:
        with case(text):
            told = to_error(classify(text, SCRIPT), "order", "acquire lock")
            assert type(told) is pawlock.NotSupported
            assert named in str(told)
            assert "args" not in str(told)
            assert "secret_source" not in str(told)


def test_what_a_server_says() -> None:
    for text, kind, error in REPLIES:
        with case(text, kind, error):
            fault = classify(text)
            assert fault.kind is kind
            assert not fault.maybe_applied, "the server refused: nothing was done"
            told = to_error(fault, "order", "acquire lock")
            assert type(told) is error
            assert told.name == "order"
            assert "acquire lock 'order'" in str(told)
            assert text in str(told), "the server's words are not lost"
            assert str(pickle.loads(pickle.dumps(told))) == str(told)


def test_a_server_that_accepts_no_writes_says_why() -> None:
    """The master's address helps where this is a replica, and nowhere else."""
    for words, helps in (
        ("READONLY You can't write against a read only replica.", True),
        ("READONLY You can't write against a read only replica. script: f_1, on @user_script:1.", True),
        ("NOREPLICAS Not enough good replicas to write.", False),
        ("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.", False),
    ):
        with case(words):
            text = str(to_error(classify(words), "n", "acquire"))
            assert ("Use the address of the master" in text) is helps
            assert "accepts no writes" in text
            assert words.split(" ", 1)[0] in text


def test_each_fault_has_an_error_of_its_own_words() -> None:
    for kind in FaultKind:
        with case(kind):
            told = to_error(Fault(kind, "words"), None, "renew")
            assert type(told) is not pawlock.BackendError, "no kind is left to the default"
            assert str(told).startswith("renew: ")
            assert str(told).endswith(f": words [{told.code}]")


def test_which_faults_pass() -> None:
    waiting_helps = {
        FaultKind.UNREACHABLE,
        FaultKind.UNANSWERED,
        FaultKind.NOT_READY,
        FaultKind.READ_ONLY,
        FaultKind.LATE,
    }
    assert {kind for kind in FaultKind if is_transient(kind)} == waiting_helps


def test_held_by_another_is_never_a_failure_of_the_server() -> None:
    assert not issubclass(pawlock.NotAcquired, pawlock.BackendError)
    assert not issubclass(pawlock.BackendError, pawlock.NotAcquired)


def test_not_acquired_catches_no_failure() -> None:
    cases: list[type[pawlock.PawlockError]] = [
        pawlock.QuorumNotReached,
        pawlock.NotReplicated,
        pawlock.ClientClosed,
        pawlock.ClockDrift,
    ]
    for failure in cases:
        with case(failure):
            assert not issubclass(failure, pawlock.NotAcquired), "it says nothing about another owner"


def test_missing_votes_and_replicas_are_faults_of_the_servers() -> None:
    for missing in (pawlock.QuorumNotReached, pawlock.NotReplicated):
        with case(missing):
            assert issubclass(missing, pawlock.BackendError)


def test_metrics_count_a_failure_as_an_error() -> None:
    cases: list[tuple[pawlock.PawlockError, str]] = [
        (pawlock.QuorumNotReached(), "error"),
        (pawlock.NotReplicated(), "error"),
        (pawlock.ClientClosed(), "closed"),
        (pawlock.AcquireTimeout(), "timeout"),
        (pawlock.QueueFull(), "refused"),
    ]
    for error, outcome in cases:
        with case(error, outcome):

            class Heard:
                def refused(self, kind: str, name: str, *, waited: float, outcome: str) -> None:
                    heard.append((kind, name, waited, outcome))

            heard: list[tuple[str, str, float, str]] = []
            observers = Observers(lambda: 3.0)
            observers.members.append(cast("Observer", Heard()))
            observers.refused("lock", "x", 1.0, error)
            assert heard == [("lock", "x", 2.0, outcome)]


def test_an_end_in_a_handshake_says_what_it_may_mean() -> None:
    for scheme, advice in {"redis": "rediss://", "rediss": "client certificate", "unix": ""}.items():
        fault = fault_of(ConnectionResetError(104, "Connection reset by peer"), f"{scheme}://somewhere")
        assert fault.kind is FaultKind.UNREACHABLE
        assert advice in fault.text
        assert ("(if" in fault.text) == bool(advice)


def test_what_several_servers_said_is_told_with_the_error() -> None:
    said = {"a": "granted", "b": "unreachable: gone"}
    lacking = to_error(Fault(FaultKind.UNREACHABLE, "too few", outcomes=said), "x", "acquire lock")
    assert isinstance(lacking, pawlock.QuorumNotReached)
    assert (lacking.outcomes, str(lacking)) == (said, f"acquire lock 'x': too few [{lacking.code}]")
    late = to_error(Fault(FaultKind.LATE, "over", outcomes=said), "x", "acquire lock")
    assert isinstance(late, pawlock.ClockDrift)
    assert late.outcomes == said
    denied = to_error(Fault(FaultKind.DENIED, "no password", outcomes=said), "x", "acquire lock")
    assert isinstance(denied, pawlock.BackendDenied)
    assert denied.__notes__ == ["a: granted; b: unreachable: gone"]
