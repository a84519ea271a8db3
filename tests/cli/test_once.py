"""`pawlock once`: one runs the command, everybody else gets its exit code."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import pawlock as library
from tests.cli.conftest import Command, Pawlock, eventually, lives

DONE = "{pawlock:%once:k}:1:done"
KEY = "pawlock:%once:k"


def waiting(pawlock: Pawlock) -> int:
    reply = pawlock.server.command("ZCARD", "{pawlock:%once:k}:1:queue")
    assert isinstance(reply, int)
    return reply


def recorded(pawlock: Pawlock) -> bool:
    return pawlock.server.command("EXISTS", DONE) == 1


def running(pawlock: Pawlock, *options: str, script: str = "echo $$; exec sleep 60") -> tuple[Command, int]:
    """Start a command that runs; returns it and the child's process id."""
    command = pawlock.start("once", *options, "k", "--", "sh", "-c", script)
    return command, int(command.line())


def test_it_runs_once_and_a_failure_again_unless_it_is_kept(pawlock: Pawlock) -> None:
    fails = ("k", "--keep", "1h", "--", "sh", "-c", "echo $PAWLOCK_FENCE; exit 3")
    code, first, _ = pawlock.run("once", *fails)
    assert (code, recorded(pawlock)) == (3, False)
    code, second, _ = pawlock.run("once", "--keep-failures", *fails)
    assert (code, recorded(pawlock)) == (3, True)
    assert int(second) > int(first)
    assert pawlock.run("once", "k", "--", "echo", "again") == (3, "", "")
    assert pawlock.run("once", "--skip", "k", "--", "echo", "again") == (0, "", "")
    assert 3_500_000 < int(str(pawlock.server.command("PTTL", DONE))) <= 3_600_000
    assert pawlock.left_over() == [DONE]


@pytest.mark.slow
def test_it_shares_its_results_with_programs(pawlock: Pawlock) -> None:
    once = pawlock.client.once("k")
    for value, code in (
        (None, 0),
        ("text", 0),
        ({"a": 1}, 0),
        (b"raw", 0),
        ({"exit_code": 7}, 7),
        ({"exit_code": "x"}, 0),
    ):
        state = once.begin()
        assert isinstance(state, library.Started)
        state.finish(value)
        assert pawlock.run("once", "k", "--", "echo", "again") == (code, "", ""), value
        once.forget()
    assert pawlock.run("once", "k", "--", "true")[0] == 0
    found = once.begin()
    assert isinstance(found, library.Done)
    assert found.value == {"exit_code": 0}


def test_who_waits_gets_the_result(pawlock: Pawlock) -> None:
    state = pawlock.client.once("k").begin()
    assert isinstance(state, library.Started)
    waiter = pawlock.start("once", "k", "--wait", "inf", "--", "echo", "third")
    eventually(lambda: waiting(pawlock) == 1)
    state.finish({"exit_code": 5})
    assert waiter.end() == (5, "", "")


@pytest.mark.slow
def test_what_a_signal_ended_is_never_a_result(pawlock: Pawlock) -> None:
    assert pawlock.run("once", "--keep-failures", "k", "--", "sh", "-c", "kill -9 $$")[0] == 137
    assert not recorded(pawlock)
    assert pawlock.left_over() == []


@pytest.mark.parametrize("words", [[], pytest.param(["-w", "0.1"], marks=pytest.mark.slow)])
def test_while_it_runs_the_others_are_told(pawlock: Pawlock, words: list[str]) -> None:
    state = pawlock.client.once("k").begin()
    assert isinstance(state, library.Started)
    code, out, err = pawlock.run("once", *words, "k", "--", "echo", "second")
    assert (code, out, err.count("\n")) == (75, "", 1)
    assert err.startswith(f"pawlock: 'k' is held by {state.lease.token.partition('@')[2]}"), err
    state.finish(b"")


@pytest.mark.slow
def test_who_waits_for_a_failure_runs_it(pawlock: Pawlock) -> None:
    first = pawlock.start("once", "k", "--", "sh", "-c", "echo in; read x; exit 4", stdin=subprocess.PIPE)
    assert first.line() == "in"
    second = pawlock.start("once", "-w", "60", "k", "--", "echo", "second")
    eventually(lambda: waiting(pawlock) == 1)
    assert first.process.stdin is not None
    first.process.stdin.close()
    first.process.stdin = None
    assert second.end() == (0, "second\n", "")
    assert first.end()[0] == 4


def test_forget(pawlock: Pawlock) -> None:
    for words in (("k", "--forget"), ("--forget", "--json", "k")):
        state = pawlock.client.once("k").begin()
        assert isinstance(state, library.Started), "it was forgotten"
        state.finish(None)
        code, out, err = pawlock.call("once", *words)
        assert (code, out) == (0, "")
        if "--json" in words:
            assert json.loads(err)["deleted"] is True
        else:
            assert err == "pawlock: 'k': the result was deleted\n"
    assert pawlock.call("once", "--forget", "k") == (0, "", "pawlock: 'k': there was no result\n")


def test_ls_and_show_know_it(pawlock: Pawlock) -> None:
    running = pawlock.client.once("k", ttl=20).begin()
    assert isinstance(running, library.Started)
    assert "(once)" in (shown := pawlock.call("show", "k")[1])
    assert "held by" in shown
    eventually(lambda: "k" in pawlock.call("ls")[1])
    (row,) = json.loads(pawlock.call("ls", "--json")[1])
    assert (row["name"], row["kind"]) == ("k", "once")
    told = json.loads(pawlock.call("show", "--json", "k")[1])
    assert ([one["kind"] for one in told["locks"]], told["done"]) == (["once"], None)
    assert pawlock.client.inspect("k").held_as == "once"
    state = pawlock.client.once("secret", keep=3600).begin()
    assert isinstance(state, library.Started)
    state.finish({"password": "1234"})
    told = json.loads(pawlock.call("show", "--json", "secret")[1])
    done = told["done"]
    assert (done["fence"], done["type"], done["size"]) == (state.fence, "JSON", 19)
    assert 3500 < done["keep_left"] <= 3600
    assert abs(done["at"] - time.time()) < 60
    running.finish(None)
    code, shown, _ = pawlock.call("show", "secret")
    assert code == 0
    assert [line.split()[0] for line in shown.splitlines()] == ["secret", "done", "fence", "kept", "value"]
    assert "1234" not in shown
    assert "nobody" in pawlock.call("show", "free")[1]


@pytest.mark.slow
def test_it_says_as_json_what_happens(pawlock: Pawlock) -> None:
    for wanted in ("held", "done"):
        code, _, err = pawlock.run("once", "--json", "k", "--", "true")
        told = [json.loads(line) for line in err.splitlines()]
        assert (code, [one["event"] for one in told]) == (0, [wanted, "ended"])


@pytest.mark.slow
def test_a_lost_lease_ends_the_command_and_records_nothing(pawlock: Pawlock) -> None:
    command, child = running(pawlock, "--ttl", "1", script="trap 'exit 0' TERM; echo $$; sleep 60 & wait")
    pawlock.server.command("DEL", KEY)
    code, _, err = command.end()
    assert code == 76
    assert err.startswith("pawlock: the lease of 'k' was lost (")
    assert not lives(child)
    assert not recorded(pawlock)


@pytest.mark.slow
def test_a_lease_that_is_lost_at_the_end_records_nothing(pawlock: Pawlock) -> None:
    first = pawlock.start("once", "k", "--", "sh", "-c", "echo in; read x; exit 0", stdin=subprocess.PIPE)
    assert first.line() == "in"
    pawlock.server.command("SET", KEY, "somebody@else:1/b" + "x" * 22, "PX", "60000")
    assert first.process.stdin is not None
    first.process.stdin.write("go\n")
    first.process.stdin.flush()
    code, _, err = first.end()
    assert (code, err.count("\n")) == (76, 1)
    assert "'k' was lost" in err
    assert not recorded(pawlock)


def test_a_command_that_was_told_to_end_is_not_done(pawlock: Pawlock) -> None:
    command, _ = running(pawlock, script="trap 'exit 0' TERM; echo $$; while :; do sleep 0.05; done")
    command.send(signal.SIGTERM)
    code, _, err = command.end()
    assert code == 0
    # The shell may say "Terminated" of its own child.
    assert "pawlock: the command was asked to end by a signal: nothing is recorded\n" in err
    assert not recorded(pawlock)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_the_next_runs_it(pawlock: Pawlock, number: signal.Signals) -> None:
    command, child = running(pawlock)
    command.send(number)
    code = command.end()[0]
    assert code == (-number if number == signal.SIGINT else 128 + number)
    eventually(lambda: not lives(child))
    assert not recorded(pawlock)
    assert pawlock.run("once", "k", "--", "echo", "next") == (0, "next\n", "")


@pytest.mark.slow
def test_a_signal_ends_the_wait_and_leaves_nothing(pawlock: Pawlock) -> None:
    running(pawlock)
    waiter = pawlock.start("once", "-w", "60", "k", "--", "true")
    eventually(lambda: waiting(pawlock) == 1)
    waiter.send(signal.SIGTERM)
    assert waiter.end() == (143, "", "")
    assert waiting(pawlock) == 0


def test_a_killed_one_takes_its_command_along_and_the_next_runs_it(pawlock: Pawlock) -> None:
    command, child = running(pawlock, "--ttl", "1")
    os.kill(command.pid, signal.SIGKILL)
    eventually(lambda: not lives(child))
    state = pawlock.client.once("k").begin(wait=True, timeout=60)
    assert isinstance(state, library.Started)
    state.finish(None)


@pytest.mark.slow
def test_max_hold_ends_it_without_a_result(pawlock: Pawlock) -> None:
    code, _, err = pawlock.run(
        "once", "--max-hold", "0.5", "k", "--", "sh", "-c", "trap 'exit 0' TERM; sleep 30 & wait"
    )
    assert code == 76
    assert "max_hold" in err
    assert not recorded(pawlock)


def test_of_many_at_once_one_runs_it(pawlock: Pawlock, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"echo x >> {mark}; sleep 0.3; exit 4"
    words = ("once", "--keep-failures", "-w", "60", "k", "--", "sh", "-c", script)
    commands = [pawlock.start(*words) for _ in range(3)]
    assert [command.end(60) for command in commands] == [(4, "", "")] * 3
    assert mark.read_text() == "x\n"


@pytest.mark.slow
def test_killed_at_any_time_it_is_done_in_the_end(pawlock: Pawlock) -> None:
    """Each has its own exit code; whoever is killed, all who are told of a result are told the same."""
    for round_ in range(12):
        pawlock.server.command("FLUSHALL")
        words = ("once", "--keep-failures", "--ttl", "1", "-w", "60", "k", "--", "sh", "-c")
        commands = [pawlock.start(*words, f"sleep 0.2; exit {number}") for number in (1, 2, 3, 4)]
        time.sleep(0.15 * round_)
        for command in commands[:2]:
            command.process.kill()
        ended = [command.end(60) for command in commands[2:]]
        assert len({code for code, _, _ in ended}) == 1
        assert 1 <= ended[0][0] <= 4
        assert recorded(pawlock)


@pytest.mark.slow
def test_a_short_outage_at_the_end_loses_no_result(pawlock_alone: Pawlock) -> None:
    pawlock = pawlock_alone
    script = "echo in; read x; exit 6"
    words = ("once", "--keep-failures", "--ttl", "20", "k", "--", "sh", "-c", script)
    first = pawlock.start(*words, stdin=subprocess.PIPE)
    assert first.line() == "in"
    with pawlock.server.paused():
        assert first.process.stdin is not None
        first.process.stdin.write("go\n")
        first.process.stdin.flush()
        time.sleep(6)
    assert first.end(30)[0] == 6
    assert pawlock.run("once", "k", "--", "false")[0] == 6
