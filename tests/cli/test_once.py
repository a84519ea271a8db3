"""`pawlock once`: one runs the command, everybody else gets its output and exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, Command, Pawlock, environment, eventually, lives

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


@pytest.mark.slow
def test_it_runs_once_and_is_replayed(pawlock: Pawlock) -> None:
    script = "echo out; echo err >&2; printf 'no newline\\377'"
    done = [
        subprocess.run(
            [*PAWLOCK, "once", "k", "--keep", "1h", "--", "sh", "-c", one],
            env=environment(PAWLOCK_URL=pawlock.server.url), capture_output=True, check=False, timeout=60,
        )
        for one in (script, "echo again")
    ]  # fmt: skip
    assert [(one.returncode, one.stdout) for one in done] == [(0, b"out\nno newline\xff")] * 2
    assert [one.stderr for one in done] == [b"err\n"] * 2
    assert 3_500_000 < int(str(pawlock.server.command("PTTL", DONE))) <= 3_600_000
    assert pawlock.run("once", "--skip", "k", "--", "false") == (0, "", "")
    assert pawlock.left_over() == [DONE]


def test_a_failure_is_run_again_unless_it_is_kept(pawlock: Pawlock) -> None:
    fails = ("k", "--", "sh", "-c", "echo $PAWLOCK_FENCE; exit 3")
    code, first, _ = pawlock.run("once", *fails)
    assert (code, recorded(pawlock)) == (3, False)
    code, second, _ = pawlock.run("once", "--keep-failures", *fails)
    assert (code, recorded(pawlock)) == (3, True)
    assert int(second) > int(first)
    assert pawlock.run("once", *fails) == (3, second, "")


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
    assert err.startswith(f"pawlock: 'k' is being run by {state.lease.token.partition('@')[2]}"), err
    state.finish(b"")


def test_who_waits_gets_the_result(pawlock: Pawlock) -> None:
    state = pawlock.client.once("k").begin()
    assert isinstance(state, library.Started)
    waiter = pawlock.start("once", "k", "--wait", "inf", "--", "echo", "third")
    eventually(lambda: waiting(pawlock) == 1)
    state.finish(b"in\n")
    assert waiter.end() == (0, "in\n", "")


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


@pytest.mark.slow
def test_a_long_output_is_cut_and_that_is_said(pawlock: Pawlock) -> None:
    code, out, err = pawlock.run("once", "k", "--", "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x")
    assert (code, out) == (0, "x" * 200_000)
    assert err.startswith("pawlock: the output has 200,000 bytes, of which ")
    code, out, err = pawlock.run("once", "k", "--", "true")
    assert (code, set(out)) == (0, {"x"})
    assert 65_000 < len(out) < 65_536
    assert err == f"pawlock: the output has 200,000 bytes, of which {len(out):,} were recorded\n"


@pytest.mark.slow
def test_each_stream_gets_its_share_of_the_record(pawlock: Pawlock) -> None:
    for out, err in ((200_000, 100), (100, 200_000), (200_000, 200_000)):
        pawlock.server.command("DEL", DONE)
        script = f"head -c {out} /dev/zero; head -c {err} /dev/zero >&2"
        assert pawlock.run("once", "-q", "k", "--", "sh", "-c", script) == (0, "\0" * out, "\0" * err)
        _, shown, told = pawlock.run("once", "-q", "k", "--", "true")
        assert 65_000 < len(shown) + len(told) < 65_536
        assert min(len(shown), len(told)) >= min(out, err, 32_000)


@pytest.mark.slow
def test_it_shares_its_results_with_programs(pawlock: Pawlock) -> None:
    with library.connect(pawlock.server.url) as client:
        for value, shown in ((None, ""), ("text", "text\n"), ({"a": 1}, '{"a": 1}\n'), (b"raw", "raw")):
            once = client.once("k")
            state = once.begin()
            assert isinstance(state, library.Started)
            state.finish(value)
            assert pawlock.run("once", "k", "--", "false") == (0, shown, "")
            once.forget()
        assert (
            pawlock.run("once", "k", "--keep-failures", "--", "sh", "-c", "echo by pawlock; exit 7")[0] == 7
        )
        found = client.once("k").begin()
        assert isinstance(found, library.Done)
        head, _, out = found.value.partition(b"\n")
        told = {"pawlock_once": 1, "exit_code": 7, "stdout": [11, 11], "stderr": [0, 0]}
        assert (json.loads(head), out) == (told, b"by pawlock\n")


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
def test_one_in_itself_does_not_wait_for_itself(pawlock: Pawlock) -> None:
    code, _, err = pawlock.run("once", "k", "--", *PAWLOCK, "once", "-w", "60", "k", "--", "true")
    assert (code, err.count("\n")) == (64, 1)
    assert "leave out --wait" in err


@pytest.mark.slow
def test_who_reads_no_more_does_not_end_it(pawlock: Pawlock, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"echo first; sleep 0.5; seq 20000; echo done > {mark}"
    command = pawlock.start("once", "k", "--", "sh", "-c", script)
    assert command.line() == "first"
    assert command.process.stdout is not None
    command.process.stdout.close()
    assert command.process.wait(30) == 0
    assert mark.read_text() == "done\n"
    assert pawlock.run("once", "k", "--", "false")[1].startswith("first\n1\n2\n")


@pytest.mark.slow
def test_it_does_not_wait_for_what_the_command_leaves_in_the_background(pawlock: Pawlock) -> None:
    command = pawlock.start("once", "k", "--", "sh", "-c", "sleep 600 & echo $!")
    left = int(command.line())
    try:
        assert command.process.wait(30) == 0
    finally:
        os.kill(left, signal.SIGKILL)
    assert pawlock.run("once", "k", "--", "false") == (0, f"{left}\n", "")


@pytest.mark.slow
def test_a_reader_that_is_slow_delays_no_record(pawlock: Pawlock) -> None:
    """All that the command wrote is recorded when it ends, whether or not it was read."""
    command = pawlock.start("once", "k", "--", "sh", "-c", "echo in; head -c 120000 /dev/zero")
    eventually(lambda: recorded(pawlock))
    assert command.process.poll() is None
    assert len(command.end()[1]) == 120_003


@pytest.mark.slow
def test_an_output_that_cannot_be_written(pawlock: Pawlock) -> None:
    for script, wanted in (("echo a; exit 0", 0), ("false", 74)):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*PAWLOCK, "once", "k", "--", "sh", "-c", script],
                env=environment(PAWLOCK_URL=pawlock.server.url), stdout=full, stderr=subprocess.PIPE, check=False,
                timeout=60,
            )  # fmt: skip
        assert done.returncode == wanted
    assert pawlock.run("once", "k", "--", "false") == (0, "a\n", "")


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
    script = f"echo x >> {mark}; sleep 0.3; echo the result"
    commands = [pawlock.start("once", "-w", "60", "k", "--", "sh", "-c", script) for _ in range(3)]
    assert [command.end(60) for command in commands] == [(0, "the result\n", "")] * 3
    assert mark.read_text() == "x\n"


@pytest.mark.slow
def test_killed_at_any_time_it_is_done_in_the_end(pawlock: Pawlock, tmp_path: Path) -> None:
    """Each has its own output; whoever is killed, all who are told of a result are told the same."""
    for round_ in range(12):
        pawlock.server.command("FLUSHALL")
        script = f"echo $$ >> {tmp_path / str(round_)}; echo $$; sleep 0.2"
        commands = [
            pawlock.start("once", "--ttl", "1", "-w", "60", "k", "--", "sh", "-c", script) for _ in range(4)
        ]
        time.sleep(0.15 * round_)
        for command in commands[:2]:
            command.process.kill()
        ended = [command.end(60) for command in commands[2:]]
        assert len({(code, out) for code, out, _ in ended}) == 1
        assert ended[0][0] == 0
        assert recorded(pawlock)


@pytest.mark.slow
def test_a_short_outage_at_the_end_loses_no_result(pawlock_alone: Pawlock) -> None:
    pawlock = pawlock_alone
    script = "echo in; read x; echo out"
    first = pawlock.start("once", "--ttl", "20", "k", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert first.line() == "in"
    with pawlock.server.paused():
        assert first.process.stdin is not None
        first.process.stdin.write("go\n")
        first.process.stdin.flush()
        time.sleep(6)
    assert first.end(30)[0] == 0
    assert pawlock.run("once", "k", "--", "false") == (0, "in\nout\n", "")


@pytest.mark.slow
def test_a_closed_standard_output_is_none_of_its_connections(pawlock: Pawlock) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *PAWLOCK, "once", "k", "--", sys.executable, "-c", "print('x' * 9000)"],
        env=environment(PAWLOCK_URL=pawlock.server.url), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert pawlock.run("once", "k", "--", "false") == (0, "x" * 9000 + "\n", "")
