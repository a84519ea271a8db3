"""What `pawlock run` answers to the shell, and that it leaves nothing behind."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import PAWLOCK, Pawlock, environment
from tests.support.pace import pace


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("exit 125", 125), ("kill -TERM $$", 143), ("kill -9 $$", 137)],
)
def test_the_child_decides(pawlock: Pawlock, script: str, code: int) -> None:
    assert pawlock.run("run", "job", "--", "sh", "-c", script) == (code, "", "")
    assert pawlock.left_over() == []


def test_the_child_sees_the_lock(pawlock: Pawlock) -> None:
    script = "import os, json; print(json.dumps({k: v for k, v in os.environ.items() if k[:4] == 'PAWLOCK'}))"
    before = int(time.time() * 1e6)
    code, out, _ = pawlock.run("run", "--ttl", "2.5", "a b", "--", sys.executable, "-c", script)
    seen = json.loads(out)
    assert code == 0
    assert seen.pop("PAWLOCK_URL") == pawlock.server.url
    assert int(seen.pop("PAWLOCK_FENCE")) >= before
    assert json.loads(seen.pop("PAWLOCK_HELD"))[0][:2] == ["lock", "a b"]
    assert seen == {"PAWLOCK_LOCK_NAME": "a b", "PAWLOCK_TTL_MS": "2500"}


def test_fences_rise(pawlock: Pawlock) -> None:
    seen = [int(pawlock.run("run", "job", "--", "sh", "-c", "echo $PAWLOCK_FENCE")[1]) for _ in range(3)]
    assert seen == sorted(set(seen))


def test_standard_input_goes_to_the_child(pawlock: Pawlock) -> None:
    command = pawlock.start("run", "job", "cat", stdin=subprocess.PIPE)
    out, err = command.process.communicate("one\ntwo\n", timeout=15)
    assert (command.process.returncode, out, err) == (0, "one\ntwo\n", "")


def test_busy(pawlock: Pawlock) -> None:
    holder = pawlock.hold("job")
    code, out, err = pawlock.run("run", "-n", "job", "--", "echo", "in")
    assert (code, out) == (75, "")
    assert f":{holder.pid}/" in err
    assert err.startswith("pawlock: 'job' is held by ")
    assert err.count("\n") == 1
    assert pawlock.run("run", "-nq", "-E", "0", "job", "--", "echo", "in") == (0, "", "")
    assert pawlock.run("run", "job", "--conflict-exit-code", "99", "-nq", "--", "echo", "in")[0] == 99
    assert pawlock.waiting("job") == 0


def test_the_wait_is_over(pawlock: Pawlock) -> None:
    holder = pawlock.hold("job")
    began = time.monotonic()
    code, out, err = pawlock.run("run", "-w", "0.7", "job", "--", "echo", "in")
    assert (code, out) == (75, "")
    assert 0.7 <= time.monotonic() - began < pace() * 3
    assert f":{holder.pid}/" in err
    assert pawlock.waiting("job") == 0


def test_it_waits_for_its_turn(pawlock: Pawlock) -> None:
    holder = pawlock.start("run", "job", "--", "sh", "-c", "echo in; sleep 1; echo out")
    assert holder.line() == "in"
    began = time.monotonic()
    code, out, _ = pawlock.run("run", "-w", "10", "job", "--", "echo", "mine")
    assert (code, out) == (0, "mine\n")
    assert time.monotonic() - began > 0.5
    assert holder.end()[0] == 0
    assert pawlock.left_over() == []


def test_min_hold_keeps_the_name_closed(pawlock: Pawlock) -> None:
    assert pawlock.run("run", "--min-hold", "20", "tick", "--", "true")[0] == 0
    assert pawlock.run("run", "-n", "tick", "--", "true")[0] == 75


def test_max_hold_ends_the_child(pawlock: Pawlock) -> None:
    began = time.monotonic()
    code, _, err = pawlock.run("run", "--max-hold", "1", "job", "--", "sleep", "30")
    assert code == 76
    assert "max_hold" in err
    assert time.monotonic() - began < pace() * 5


def test_not_found_and_not_executable(pawlock: Pawlock, tmp_path: Path) -> None:
    code, _, err = pawlock.run("run", "job", "--", "no-such-program-here")
    assert (code, err) == (127, "pawlock: no-such-program-here: command not found\n")
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert pawlock.run("run", "job", "--", str(plain))[0] == 126
    assert pawlock.run("run", "job", "--", str(tmp_path))[0] == 126


def test_a_program_that_the_system_cannot_start(pawlock: Pawlock, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_text("no interpreter is named here")
    odd.chmod(0o755)
    code, _, err = pawlock.run("run", "job", "--", str(odd))
    assert (code, err) == (126, f"pawlock: {odd}: Exec format error\n")
    gone = tmp_path / "gone"
    gone.write_text("#!/no/such/interpreter\n")
    gone.chmod(0o755)
    assert pawlock.run("run", "job", "--", str(gone))[0] == 127
    assert pawlock.left_over() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "job"],
        ["run", "job", "--"],
        ["run", "--", "true"],
        ["run", "job", "extra", "--", "true"],
        ["run", "--no-such-option", "job", "--", "true"],
        ["run", "-n", "-w", "3", "job", "--", "true"],
        ["run", "-w", "-1", "job", "--", "true"],
        ["run", "-w", "nan", "job", "--", "true"],
        ["run", "-E", "256", "job", "--", "true"],
        ["run", "--ttl", "0.001", "job", "--", "true"],
        ["run", "--url", "gopher://x", "job", "--", "true"],
        ["run", "x" * 300, "--", "true"],
        ["no-such-verb"],
    ],
)
def test_wrong_usage(pawlock: Pawlock, arguments: list[str]) -> None:
    code, out, err = pawlock.run(*arguments)
    assert (code, out) == (64, "")
    assert err.startswith("pawlock: ")
    assert err.count("\n") == 1


def test_an_unreachable_server_is_no_conflict(pawlock: Pawlock) -> None:
    code, out, err = pawlock.run("run", "-n", "--url", "redis://127.0.0.1:1/0", "job", "--", "echo", "in")
    assert (code, out) == (69, "")
    assert err.startswith("pawlock: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("options", [["-n"], ["-n", "-E", "0"], ["-w", "1", "-E", "0"]])
def test_dead_masters_are_no_conflict(pawlock: Pawlock, options: list[str]) -> None:
    """Not for cron either: with `-E 0` a conflict is a success."""
    masters = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    code, out, err = pawlock.run("run", *options, "--json", "--url", masters, "job", "--", "echo", "in")
    assert (code, out) == (69, "")
    assert '"busy"' not in err


@pytest.mark.parametrize("fd", [0, 1, 2])
@pytest.mark.parametrize("code", [0, 3])
def test_a_closed_descriptor_changes_no_exit_code(pawlock: Pawlock, fd: int, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {fd}>&-', "sh", *PAWLOCK, "run", "job", "--", "sh", "-c", f"exit {code}"],
        env=environment(PAWLOCK_URL=pawlock.server.url),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert pawlock.left_over() == []


CLOSED = {
    "ls": (["ls"], 74),
    "show": (["show", "job"], 74),
    "top": (["top", "-n", "1"], 74),
    "watch": (["watch", "-n", "1", "job"], 74),
    "acquire": (["acquire", "-n", "job"], 74),
    "audit": (["audit"], 0),  # there is nothing to print
    "release": (["release", "x"], 64),
    "renew": (["renew", "x"], 64),
    "force-release": (["force-release", "--yes", "--reason", "r", "job"], 74),
    "elect": (["elect", "job", "--", "sh", "-c", "exit 3"], 3),
    "once": (["once", "job", "--", "sh", "-c", "echo in; exit 3"], 3),
    "--help": (["--help"], 0),
    "--version": (["--version"], 0),
    "run --help": (["run", "--help"], 0),
}


@pytest.mark.parametrize("verb", CLOSED)
def test_a_closed_output_is_one_line(pawlock: Pawlock, verb: str) -> None:
    arguments, code = CLOSED[verb]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *PAWLOCK, *arguments],
        env=environment(PAWLOCK_URL=pawlock.server.url),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == (code in (64, 74)), done.stderr
    assert pawlock.server.command("EXISTS", "pawlock:job", "pawlock:%election:job", "pawlock:%once:job") == 0


def test_more_than_1024_descriptors_are_inherited(pawlock: Pawlock) -> None:
    script = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(1100): os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
os.execv(sys.argv[1], sys.argv[1:])
"""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("this process may not have 4,096 descriptors")
    for verb in ("run", "elect", "once"):
        done = subprocess.run(
            [sys.executable, "-c", script, *PAWLOCK, verb, "job", "--", "sh", "-c", "echo in; exit 3"],
            env=environment(PAWLOCK_URL=pawlock.server.url),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, "in\n", "")


def test_options_on_both_sides_of_the_name(pawlock: Pawlock) -> None:
    assert pawlock.run("run", "job", "--wait", "3", "--", "sh", "-c", "exit 4", "-x")[0] == 4
    assert pawlock.run("run", "--wait", "3", "job", "sh", "-c", "exit 5", "--wait")[0] == 5
    assert pawlock.run("run", "job", "--", "echo", "a", "--", "b")[1] == "a -- b\n"


def test_the_namespace_is_taken(pawlock: Pawlock) -> None:
    pawlock.hold("job", "--namespace", "other")
    assert "other:job" in pawlock.left_over()
    assert pawlock.run("run", "-n", "job", "--", "true")[0] == 0


def test_many_take_turns(pawlock: Pawlock, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"echo in >> {log}; sleep 0.05; echo out >> {log}"
    commands = [pawlock.start("run", "job", "--", "sh", "-c", script) for _ in range(6)]
    assert [command.end(60)[0] for command in commands] == [0] * 6
    assert log.read_text().split() == ["in", "out"] * 6
    assert pawlock.left_over() == []


def test_version_and_help(pawlock: Pawlock) -> None:
    import pawlock as library

    assert pawlock.run("--version") == (0, f"pawlock {library.__version__}\n", "")
    code, out, _ = pawlock.run("run", "--help")
    assert code == 0
    for word in ("Examples:", "Exit codes:", "PAWLOCK_FENCE", "--kill-after"):
        assert word in out
    assert "run" in pawlock.run("--help")[1]
    assert pawlock.run()[0] == 64


def test_without_click_one_line_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ImportError('not installed')\n")
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{env['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "pawlock", "run", "job", "--", "true"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
    )
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == 'pawlock: the command needs click: pip install "pawlock[cli]"\n'


def test_a_program_is_told_as_json_what_happens(pawlock: Pawlock) -> None:
    code, out, err = pawlock.run("run", "--json", "job", "--", "sh", "-c", "echo in; exit 3")
    assert (code, out) == (3, "in\n")
    told = [json.loads(line) for line in err.splitlines()]
    assert [one["event"] for one in told] == ["held", "ended"]
    assert told[0]["fence"] > 0
    assert (told[1]["name"], told[1]["exit_code"]) == ("job", 3)
    pawlock.hold("job")
    code, _, err = pawlock.run("run", "--json", "-n", "job", "--", "true")
    told = [json.loads(line) for line in err.splitlines()]
    assert [one["event"] for one in told] == ["busy", "ended"]
    assert (code, told[0]["level"], told[1]["exit_code"]) == (75, "warning", 75)
    assert told[0]["holder"] in told[0]["text"]
    code, _, err = pawlock.run("elect", "--json", "lead", "--", "true")
    assert (code, [json.loads(line)["event"] for line in err.splitlines()]) == (0, ["held", "ended"])
