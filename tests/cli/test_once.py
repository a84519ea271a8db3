"""`pawl once`: one runs the command, everybody else gets its output and exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pawl as library
from pawl.cli._output import Output, Recording
from tests.cli.conftest import PAWL, Command, Pawl, environment, eventually, lives

DONE = "{pawl:%once:k}:1:done"
KEY = "pawl:%once:k"


def waiting(pawl: Pawl) -> int:
    reply = pawl.server.command("ZCARD", "{pawl:%once:k}:1:queue")
    assert isinstance(reply, int)
    return reply


def recorded(pawl: Pawl) -> bool:
    return pawl.server.command("EXISTS", DONE) == 1


def running(pawl: Pawl, *options: str, script: str = "echo $$; exec sleep 60") -> tuple[Command, int]:
    """Start a command that runs; returns it and the child's process id."""
    command = pawl.start("once", *options, "k", "--", "sh", "-c", script)
    return command, int(command.line())


def test_it_runs_once_and_is_replayed(pawl: Pawl) -> None:
    script = "echo out; echo err >&2; printf 'no newline\\377'"
    done = [
        subprocess.run(
            [*PAWL, "once", "k", "--keep", "1h", "--", "sh", "-c", one],
            env=environment(PAWL_URL=pawl.server.url), capture_output=True, check=False, timeout=60,
        )
        for one in (script, "echo again")
    ]  # fmt: skip
    assert [(one.returncode, one.stdout) for one in done] == [(0, b"out\nno newline\xff")] * 2
    assert [one.stderr for one in done] == [b"err\n"] * 2
    assert 3_500_000 < int(str(pawl.server.command("PTTL", DONE))) <= 3_600_000
    assert pawl.run("once", "--skip", "k", "--", "false") == (0, "", "")
    assert pawl.left_over() == [DONE]


def test_a_failure_is_run_again_unless_it_is_kept(pawl: Pawl) -> None:
    fails = ("k", "--", "sh", "-c", "echo $PAWL_FENCE; exit 3")
    code, first, _ = pawl.run("once", *fails)
    assert (code, recorded(pawl)) == (3, False)
    code, second, _ = pawl.run("once", "--keep-failures", *fails)
    assert (code, recorded(pawl)) == (3, True)
    assert int(second) > int(first)
    assert pawl.run("once", *fails) == (3, second, "")
    assert pawl.run("once", "--skip", *fails) == (0, "", "")


def test_what_a_signal_ended_is_never_a_result(pawl: Pawl) -> None:
    assert pawl.run("once", "--keep-failures", "k", "--", "sh", "-c", "kill -9 $$")[0] == 137
    assert not recorded(pawl)
    assert pawl.left_over() == []


def test_while_it_runs_the_others_are_told_or_wait(pawl: Pawl) -> None:
    first = pawl.start("once", "k", "--", "sh", "-c", "echo in; read x; exit 0", stdin=subprocess.PIPE)
    assert first.line() == "in"
    code, out, err = pawl.run("once", "k", "--", "echo", "second")
    assert (code, out, err.count("\n")) == (75, "", 1)
    assert err.startswith("pawl: 'k' is being run by ")
    assert f":{first.pid}/" in err
    assert pawl.run("once", "-w", "0.1", "k", "--", "echo", "second")[0] == 75
    third = pawl.start("once", "k", "--wait", "inf", "--", "echo", "third")
    eventually(lambda: waiting(pawl) == 1)
    assert first.process.stdin is not None
    first.process.stdin.write("go\n")
    first.process.stdin.flush()
    assert third.end() == (0, "in\n", "")
    assert first.end()[0] == 0


def test_who_waits_for_a_failure_runs_it(pawl: Pawl) -> None:
    first = pawl.start("once", "k", "--", "sh", "-c", "echo in; read x; exit 4", stdin=subprocess.PIPE)
    assert first.line() == "in"
    second = pawl.start("once", "-w", "60", "k", "--", "echo", "second")
    eventually(lambda: waiting(pawl) == 1)
    assert first.process.stdin is not None
    first.process.stdin.close()
    first.process.stdin = None
    assert second.end() == (0, "second\n", "")
    assert first.end()[0] == 4


def test_forget(pawl: Pawl) -> None:
    pawl.run("once", "k", "--", "true")
    assert pawl.run("once", "k", "--forget") == (0, "", "pawl: 'k': the result was deleted\n")
    assert pawl.run("once", "--forget", "k") == (0, "", "pawl: 'k': there was no result\n")
    assert pawl.run("once", "k", "--", "echo", "again") == (0, "again\n", "")
    code, _, err = pawl.run("once", "--forget", "--json", "k")
    assert (code, json.loads(err)["deleted"]) == (0, True)


def test_a_long_output_is_cut_and_that_is_said(pawl: Pawl) -> None:
    code, out, err = pawl.run("once", "k", "--", "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x")
    assert (code, out) == (0, "x" * 200_000)
    assert err.startswith("pawl: the output has 200,000 bytes, of which ")
    code, out, err = pawl.run("once", "k", "--", "true")
    assert (code, set(out)) == (0, {"x"})
    assert 65_000 < len(out) < 65_536
    assert err == f"pawl: the output has 200,000 bytes, of which {len(out):,} were recorded\n"


def test_each_stream_gets_its_share_of_the_record(pawl: Pawl) -> None:
    for out, err in ((200_000, 100), (100, 200_000), (200_000, 200_000)):
        pawl.server.command("DEL", DONE)
        script = f"head -c {out} /dev/zero; head -c {err} /dev/zero >&2"
        assert pawl.run("once", "-q", "k", "--", "sh", "-c", script) == (0, "\0" * out, "\0" * err)
        _, shown, told = pawl.run("once", "-q", "k", "--", "true")
        assert 65_000 < len(shown) + len(told) < 65_536
        assert min(len(shown), len(told)) >= min(out, err, 32_000)


def test_it_shares_its_results_with_programs(pawl: Pawl) -> None:
    with library.connect(pawl.server.url) as client:
        for value, shown in ((None, ""), ("text", "text\n"), ({"a": 1}, '{"a": 1}\n'), (b"raw", "raw")):
            once = client.once("k")
            state = once.begin()
            assert isinstance(state, library.Started)
            state.finish(value)
            assert pawl.run("once", "k", "--", "false") == (0, shown, "")
            once.forget()
        assert pawl.run("once", "k", "--keep-failures", "--", "sh", "-c", "echo by pawl; exit 7")[0] == 7
        found = client.once("k").begin()
        assert isinstance(found, library.Done)
        head, _, out = found.value.partition(b"\n")
        told = {"pawl_once": 1, "exit_code": 7, "stdout": [8, 8], "stderr": [0, 0]}
        assert (json.loads(head), out) == (told, b"by pawl\n")


def test_ls_and_show_know_it(pawl: Pawl) -> None:
    running(pawl, "--ttl", "20")
    assert "(once)" in (shown := pawl.run("show", "k")[1])
    assert "held by" in shown
    eventually(lambda: "k" in pawl.run("ls")[1])
    (row,) = json.loads(pawl.run("ls", "--json")[1])
    assert (row["name"], row["kind"]) == ("k", "once")
    told = json.loads(pawl.run("show", "--json", "k")[1])
    assert ([one["kind"] for one in told["locks"]], told["done"]) == (["once"], None)
    with library.connect(pawl.server.url) as client:
        assert client.inspect("k").held_as == "once"
        state = client.once("secret", keep=3600).begin()
        assert isinstance(state, library.Started)
        state.finish({"password": "1234"})
        told = json.loads(pawl.run("show", "--json", "secret")[1])
        assert (told["done"]["fence"], told["done"]["type"], told["done"]["size"]) == (
            state.fence,
            "JSON",
            19,
        )
        assert 3500 < told["done"]["keep_left"] <= 3600
        assert abs(told["done"]["at"] - time.time()) < 60
    code, shown, _ = pawl.run("show", "secret")
    assert code == 0
    assert [line.split()[0] for line in shown.splitlines()] == ["secret", "done", "fence", "kept", "value"]
    assert "1234" not in shown
    assert "nobody" in pawl.run("show", "free")[1]


def test_it_says_as_json_what_happens(pawl: Pawl) -> None:
    for wanted in ("held", "done"):
        code, _, err = pawl.run("once", "--json", "k", "--", "true")
        told = [json.loads(line) for line in err.splitlines()]
        assert (code, [one["event"] for one in told]) == (0, [wanted, "ended"])


def test_one_in_itself_does_not_wait_for_itself(pawl: Pawl) -> None:
    code, _, err = pawl.run("once", "k", "--", *PAWL, "once", "-w", "60", "k", "--", "true")
    assert (code, err.count("\n")) == (64, 1)
    assert "leave out --wait" in err


def test_who_reads_no_more_does_not_end_it(pawl: Pawl, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"echo first; sleep 0.5; seq 20000; echo done > {mark}"
    command = pawl.start("once", "k", "--", "sh", "-c", script)
    assert command.line() == "first"
    assert command.process.stdout is not None
    command.process.stdout.close()
    assert command.process.wait(30) == 0
    assert mark.read_text() == "done\n"
    assert pawl.run("once", "k", "--", "false")[1].startswith("first\n1\n2\n")


def test_it_does_not_wait_for_what_the_command_leaves_in_the_background(pawl: Pawl) -> None:
    command = pawl.start("once", "k", "--", "sh", "-c", "sleep 600 & echo $!")
    left = int(command.line())
    try:
        assert command.process.wait(30) == 0
    finally:
        os.kill(left, signal.SIGKILL)
    assert pawl.run("once", "k", "--", "false") == (0, f"{left}\n", "")


def test_a_reader_that_is_slow_delays_no_record(pawl: Pawl) -> None:
    """All that the command wrote is recorded when it ends, whether or not it was read."""
    command = pawl.start("once", "k", "--", "sh", "-c", "echo in; head -c 120000 /dev/zero")
    eventually(lambda: recorded(pawl))
    assert command.process.poll() is None
    assert len(command.end()[1]) == 120_003


def test_an_output_that_cannot_be_written(pawl: Pawl) -> None:
    for script, wanted in (("echo a; exit 0", 0), ("false", 74)):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*PAWL, "once", "k", "--", "sh", "-c", script],
                env=environment(PAWL_URL=pawl.server.url), stdout=full, stderr=subprocess.PIPE, check=False,
                timeout=60,
            )  # fmt: skip
        assert done.returncode == wanted
    assert pawl.run("once", "k", "--", "false") == (0, "a\n", "")


def test_a_lost_lease_ends_the_command_and_records_nothing(pawl: Pawl) -> None:
    command, child = running(pawl, "--ttl", "1", script="trap 'exit 0' TERM; echo $$; sleep 60 & wait")
    pawl.server.command("DEL", KEY)
    code, _, err = command.end()
    assert code == 76
    assert err.startswith("pawl: the lease of 'k' was lost (")
    assert not lives(child)
    assert not recorded(pawl)


def test_a_lease_that_is_lost_at_the_end_records_nothing(pawl: Pawl) -> None:
    first = pawl.start("once", "k", "--", "sh", "-c", "echo in; read x; exit 0", stdin=subprocess.PIPE)
    assert first.line() == "in"
    pawl.server.command("SET", KEY, "somebody@else:1/b" + "x" * 22, "PX", "60000")
    assert first.process.stdin is not None
    first.process.stdin.write("go\n")
    first.process.stdin.flush()
    code, _, err = first.end()
    assert (code, err.count("\n")) == (76, 1)
    assert "'k' was lost" in err
    assert not recorded(pawl)


def test_a_command_that_was_told_to_end_is_not_done(pawl: Pawl) -> None:
    command, _ = running(pawl, script="trap 'exit 0' TERM; echo $$; while :; do sleep 0.05; done")
    command.send(signal.SIGTERM)
    code, _, err = command.end()
    assert code == 0
    # The shell may say "Terminated" of its own child.
    assert "pawl: the command was asked to end by a signal: nothing is recorded\n" in err
    assert not recorded(pawl)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_the_next_runs_it(pawl: Pawl, number: signal.Signals) -> None:
    command, child = running(pawl)
    command.send(number)
    code = command.end()[0]
    assert code == (-number if number == signal.SIGINT else 128 + number)
    eventually(lambda: not lives(child))
    assert not recorded(pawl)
    assert pawl.run("once", "k", "--", "echo", "next") == (0, "next\n", "")


def test_a_signal_ends_the_wait_and_leaves_nothing(pawl: Pawl) -> None:
    running(pawl)
    waiter = pawl.start("once", "-w", "60", "k", "--", "true")
    eventually(lambda: waiting(pawl) == 1)
    waiter.send(signal.SIGTERM)
    assert waiter.end() == (143, "", "")
    assert waiting(pawl) == 0


def test_a_killed_one_takes_its_command_along_and_the_next_runs_it(pawl: Pawl) -> None:
    command, child = running(pawl, "--ttl", "1")
    waiter = pawl.start("once", "-w", "60", "k", "--", "echo", "after")
    eventually(lambda: waiting(pawl) == 1)
    os.kill(command.pid, signal.SIGKILL)
    eventually(lambda: not lives(child))
    assert waiter.end() == (0, "after\n", "")


def test_max_hold_ends_it_without_a_result(pawl: Pawl) -> None:
    code, _, err = pawl.run(
        "once", "--max-hold", "0.5", "k", "--", "sh", "-c", "trap 'exit 0' TERM; sleep 30 & wait"
    )
    assert code == 76
    assert "max_hold" in err
    assert not recorded(pawl)


def test_of_many_at_once_one_runs_it(pawl: Pawl, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"echo x >> {mark}; sleep 0.3; echo the result"
    commands = [pawl.start("once", "-w", "60", "k", "--", "sh", "-c", script) for _ in range(6)]
    assert [command.end(60) for command in commands] == [(0, "the result\n", "")] * 6
    assert mark.read_text() == "x\n"


@pytest.mark.slow
def test_killed_at_any_time_it_is_done_in_the_end(pawl: Pawl, tmp_path: Path) -> None:
    """Each has its own output; whoever is killed, all who are told of a result are told the same."""
    for round_ in range(12):
        pawl.server.command("FLUSHALL")
        script = f"echo $$ >> {tmp_path / str(round_)}; echo $$; sleep 0.2"
        commands = [
            pawl.start("once", "--ttl", "1", "-w", "60", "k", "--", "sh", "-c", script) for _ in range(4)
        ]
        time.sleep(0.15 * round_)
        for command in commands[:2]:
            command.process.kill()
        ended = [command.end(60) for command in commands[2:]]
        assert len({(code, out) for code, out, _ in ended}) == 1
        assert ended[0][0] == 0
        assert recorded(pawl)


@pytest.mark.slow
def test_a_short_outage_at_the_end_loses_no_result(pawl_alone: Pawl) -> None:
    pawl = pawl_alone
    script = "echo in; read x; echo out"
    first = pawl.start("once", "--ttl", "20", "k", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert first.line() == "in"
    with pawl.server.paused():
        assert first.process.stdin is not None
        first.process.stdin.write("go\n")
        first.process.stdin.flush()
        time.sleep(6)
    assert first.end(30)[0] == 0
    assert pawl.run("once", "k", "--", "false") == (0, "in\nout\n", "")


def test_a_header_that_is_not_its_own_is_shown_as_it_is() -> None:
    for value in (b"", b"[1]\nx", b'{"pawl_once": 2}\nx', b'{"pawl_once": 1}\nx', b"\xff\n"):
        output = Output()
        done = library.Done(value, 1, None)  # type: ignore[arg-type]  # the time is not looked at
        assert Recording().replay(done, output) == 0
        assert b"".join(output.out._unshown) == value
        for one in (output.out, output.err):
            for end in (*one.pipe, one._stop, one._stopper):
                os.close(end)


def test_a_closed_standard_output_is_none_of_its_connections(pawl: Pawl) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *PAWL, "once", "k", "--", sys.executable, "-c", "print('x' * 9000)"],
        env=environment(PAWL_URL=pawl.server.url), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert pawl.run("once", "k", "--", "false") == (0, "x" * 9000 + "\n", "")
