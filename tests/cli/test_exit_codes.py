"""What `pawlock run` answers to the shell, and that it leaves nothing behind."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pawlock import NotHeld
from tests.cli.conftest import PAWLOCK, Pawlock, environment, eventually
from tests.support.pace import pace


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("kill -9 $$", 137),
        # What ends by itself, others have here as well.
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in [("exit 0", 0), ("exit 7", 7), ("exit 125", 125), ("kill -TERM $$", 143)]
        ),
    ],
)
def test_the_child_decides(pawlock: Pawlock, script: str, code: int) -> None:
    assert pawlock.run("run", "job", "--", "sh", "-c", script) == (code, "", "")
    assert pawlock.left_over() == []


def test_the_child_sees_the_lock_and_fences_rise(pawlock: Pawlock) -> None:
    script = (
        "import os, json; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('PAWLOCK')}))"
    )
    before = int(time.time() * 1e6)
    code, out, _ = pawlock.run("run", "--ttl", "2.5", "a {b}", "--", sys.executable, "-c", script)
    seen = json.loads(out)
    assert code == 0
    assert seen.pop("PAWLOCK_URL") == pawlock.server.url
    fence = int(seen.pop("PAWLOCK_FENCE"))
    assert fence >= before
    assert seen == {"PAWLOCK_LOCK_NAME": "a {b}", "PAWLOCK_TTL_MS": "2500"}
    with pawlock.client.lock("a {{b}}") as lease:
        assert lease.fence > fence


def test_standard_input_goes_to_the_child(pawlock: Pawlock) -> None:
    command = pawlock.start("run", "job", "cat", stdin=subprocess.PIPE)
    out, err = command.process.communicate("one\ntwo\n", timeout=15)
    assert (command.process.returncode, out, err) == (0, "one\ntwo\n", "")


def test_busy(pawlock: Pawlock) -> None:
    with pawlock.client.lock("job") as held:
        holder = pawlock.client.inspect("job").holder
        code, out, err = pawlock.run("run", "-n", "job", "--", "echo", "in")
        assert (code, out, err) == (75, "", f"pawlock: 'job' is held by {holder} [LOCK_TIMEOUT]\n")
        assert pawlock.waiting("job") == 0
        held.check()


def test_the_wait_is_over(pawlock: Pawlock) -> None:
    with pawlock.client.lock("job"):
        began = time.monotonic()
        code, out, err = pawlock.run(
            "run", "-w", "0.7", "--conflict-exit-code", "99", "job", "--", "echo", "in"
        )
        assert (code, out) == (99, "")
        assert 0.7 <= time.monotonic() - began < pace() * 3
        assert pawlock.client.inspect("job").holder in err
        assert pawlock.waiting("job") == 0


def test_it_waits_for_its_turn(pawlock: Pawlock) -> None:
    with pawlock.client.lock("job"):
        waiter = pawlock.start("run", "-w", "20", "job", "--", "echo", "mine")
        eventually(lambda: pawlock.waiting("job") == 1)
        assert waiter.process.poll() is None
    assert waiter.end() == (0, "mine\n", "")
    assert pawlock.left_over() == []


def test_min_hold_keeps_the_name_closed(pawlock: Pawlock) -> None:
    assert pawlock.run("run", "--min-hold", "20", "tick", "--", "true")[0] == 0
    assert pawlock.client.lock("tick").try_acquire() is None


def test_max_hold_ends_the_child(pawlock: Pawlock) -> None:
    began = time.monotonic()
    code, _, err = pawlock.run("run", "--max-hold", "1", "job", "--", "sleep", "30")
    assert code == 76
    assert "max_hold" in err
    assert time.monotonic() - began < pace() * 5


def test_not_found_and_not_executable(pawlock: Pawlock, tmp_path: Path) -> None:
    said = (127, "", "pawlock: no-such-program-here: command not found\n")
    assert pawlock.call("run", "job", "--", "no-such-program-here") == said
    plain = tmp_path / "plain"
    plain.write_text("text")
    for wrong in (plain, tmp_path):
        said = (126, "", f"pawlock: {wrong}: not executable\n")
        assert pawlock.call("run", "job", "--", str(wrong)) == said


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("no interpreter is named here", 126, "Exec format error"),
        pytest.param("#!/no/such/interpreter\n", 127, "No such file or directory", marks=pytest.mark.slow),
    ],
)
def test_a_program_that_the_system_cannot_start(
    pawlock: Pawlock, tmp_path: Path, text: str, code: int, why: str
) -> None:
    odd = tmp_path / "odd"
    odd.write_text(text)
    odd.chmod(0o755)
    assert pawlock.run("run", "job", "--", str(odd)) == (code, "", f"pawlock: {odd}: {why}\n")
    assert pawlock.left_over() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--ttl", "0.001", "job"],
        pytest.param(["--url", "gopher://x", "job"], marks=pytest.mark.slow),
        pytest.param(["x" * 300], marks=pytest.mark.slow),
    ],
)
def test_what_the_library_refuses_is_wrong_usage(pawlock: Pawlock, arguments: list[str]) -> None:
    """Other wrong usage is seen before a process is started: tests/cli/test_usage.py."""
    code, out, err = pawlock.run("run", *arguments, "--", "true")
    assert (code, out) == (64, "")
    assert err.startswith("pawlock: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://127.0.0.1:1/0", ["-n"]),
        ("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", ["-n", "-E", "0"]),
        *(
            pytest.param("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", options, marks=pytest.mark.slow)
            for options in (["-n"], ["-w", "1", "-E", "0"])
        ),
    ],
)
def test_an_unreachable_server_is_no_conflict(pawlock: Pawlock, url: str, options: list[str]) -> None:
    """Not for cron either: with `-E 0` a conflict is a success."""
    code, out, err = pawlock.run("run", *options, "--json", "--url", url, "job", "--", "echo", "in")
    told = [json.loads(line) for line in err.splitlines()]
    assert (code, out, told[-1]["exit_code"]) == (69, "", 69)
    assert (len(told), told[0]["level"]) == (2, "error")


@pytest.mark.parametrize(
    ("closed", "code"),
    [
        ("0<&- 1>&- 2>&-", 3),
        *(pytest.param(f"{fd}>&-", code, marks=pytest.mark.slow) for fd in (0, 1, 2) for code in (0, 3)),
    ],
)
def test_a_closed_descriptor_changes_no_exit_code(pawlock: Pawlock, closed: str, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *PAWLOCK, "run", "job", "--", "sh", "-c", f"exit {code}"],
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
    "--help": (["--help"], 0),
    "--version": (["--version"], 0),
    "run --help": (["run", "--help"], 0),
    "force-release": (["force-release", "--yes", "--reason", "r", "job"], 74),
    "show": (["show", "job"], 74),
    "top": (["top", "-n", "1"], 74),
    "run --elect": (["run", "--elect", "job", "--", "sh", "-c", "exit 3"], 3),
    "once": (["once", "job", "--", "sh", "-c", "exit 3"], 3),
}
OFTEN = 4
"""Those that a start costs little, and one that prints as the others do; in `make test-full` all."""


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[pytest.mark.slow] * (at >= OFTEN)) for at, verb in enumerate(CLOSED)]
)
def test_a_closed_output_is_one_line(pawlock: Pawlock, verb: str) -> None:
    arguments, code = CLOSED[verb]
    taken = pawlock.client.lock("job").acquire() if verb == "force-release" else None
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
    if taken is not None:
        with pytest.raises(NotHeld):
            taken.release()


@pytest.mark.parametrize("verb", ["run", pytest.param("once", marks=pytest.mark.slow)])
def test_more_than_1024_descriptors_are_inherited(pawlock: Pawlock, verb: str) -> None:
    script = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(1100): os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
os.execv(sys.argv[1], sys.argv[1:])
"""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("this process may not have 4,096 descriptors")
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
    assert pawlock.run("run", "job", "--wait", "3", "--", "echo", "a", "--", "b", "-x") == (
        0,
        "a -- b -x\n",
        "",
    )
    said = (127, "", "pawlock: no-such-program: command not found\n")
    for words in ("job --wait 3 -- no-such-program -x", "--wait 3 job no-such-program --wait"):
        assert pawlock.call("run", *words.split()) == said


def test_the_namespace_is_taken(pawlock: Pawlock) -> None:
    with pawlock.client.lock("job"):
        # What stands before the command counts for it, too.
        command = pawlock.start(
            "--namespace",
            "other",
            "run",
            "-n",
            "job",
            "--",
            "sh",
            "-c",
            "echo in; read x",
            stdin=subprocess.PIPE,
        )
        assert command.line() == "in"
        assert pawlock.server.command("EXISTS", "other:job") == 1
        command.process.communicate("\n", timeout=15)
        assert command.process.returncode == 0


def test_many_take_turns(pawlock: Pawlock, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"echo in >> {log}; sleep 0.05; echo out >> {log}"
    commands = [pawlock.start("run", "job", "--", "sh", "-c", script) for _ in range(3)]
    assert [command.end(60)[0] for command in commands] == [0] * 3
    assert log.read_text().split() == ["in", "out"] * 3
    assert pawlock.left_over() == []


def test_without_click_one_line_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ImportError('not installed')\n")
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    done = subprocess.run(
        [*PAWLOCK, "run", "job", "--", "true"],
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
    with pawlock.client.lock("job"):
        code, _, err = pawlock.run("run", "job", "--json", "-n", "-E", "0", "--", "false")
    told = [json.loads(line) for line in err.splitlines()]
    assert [one["event"] for one in told] == ["busy", "ended"]
    assert (code, told[0]["level"], told[1]["exit_code"]) == (0, "warning", 0)
    assert told[0]["holder"] in told[0]["text"]
