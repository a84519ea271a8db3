"""At a terminal: Ctrl-C comes once, Ctrl-Z and `fg` work, and whoever needs the terminal has it."""

import contextlib
import re
import shlex
import shutil
import signal
import sys
import time

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, Pawlock, eventually, lives
from tests.cli.screen import Screen, open_screen
from tests.support.pace import pace

VERBS = pytest.mark.parametrize("verb", ["run", pytest.param("once", marks=pytest.mark.slow)])
COUNT = """
import signal, sys, time
got = []
def say(number, frame):
    got.append(number)
signal.signal(signal.SIGINT, say)
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end and not got: time.sleep(0.05)
time.sleep(1.5)
print("bye after", len(got), flush=True)
sys.exit(4)
"""


def in_sh(script: str) -> tuple[str, ...]:
    """A script in which `pawlock` is this pawlock."""
    return ("sh", "-c", f'pawlock() {{ {shlex.join(PAWLOCK)} "$@"; }}; {script}')


def count_ctrl_c(screen: Screen) -> int:
    """Type Ctrl-C, and have the child say at its end how many came: what it printed at once a terminal may flush."""
    screen.until("ready\n")
    screen.type("\x03")
    try:
        return int(screen.until(r"bye after (\d+)\n", 20))
    except AssertionError as error:
        raise AssertionError(f"{error}; at the terminal: {screen.processes()}") from None


@VERBS
def test_ctrl_c_reaches_the_child_once(screens: list[Screen], pawlock: Pawlock, verb: str) -> None:
    screen = open_screen(screens, pawlock, *PAWLOCK, verb, "job", "--", sys.executable, "-c", COUNT)
    assert count_ctrl_c(screen) == 1
    assert screen.end() == 4
    assert pawlock.left_over() == []


@VERBS
def test_ctrl_c_reaches_the_child_once_in_a_pipeline(
    screens: list[Screen], pawlock: Pawlock, verb: str
) -> None:
    """There the terminal stays with the pipeline, and we pass the signal on."""
    script = (
        f"trap : INT; pawlock {verb} job -- {shlex.join([sys.executable, '-c', COUNT])} | (trap '' INT; cat)"
    )
    screen = open_screen(screens, pawlock, *in_sh(script))
    assert count_ctrl_c(screen) == 1
    screen.end()
    assert pawlock.left_over() == []


def test_ctrl_c_ends_the_wait(screens: list[Screen], pawlock: Pawlock) -> None:
    with pawlock.client.lock("job"):
        holder = re.escape(pawlock.client.inspect("job").holder)
        screen = open_screen(screens, pawlock, *PAWLOCK, "run", "job", "--", "echo", "in")
        screen.until(rf"waiting for 'job', held by {holder} since \S+ … \(\d+ s\)")
        screen.type("\x03")
        began = time.monotonic()
        assert screen.end() == -signal.SIGINT
        assert time.monotonic() - began < pace() * 2
        assert pawlock.waiting("job") == 0


def test_the_child_may_read_the_terminal(screens: list[Screen], pawlock: Pawlock) -> None:
    screen = open_screen(
        screens, pawlock, *PAWLOCK, "run", "job", "--", "sh", "-c", "echo name?; read x; echo hello $x"
    )
    screen.until(r"name\?\n")
    screen.type("world\n")
    screen.until("hello world\n")
    assert screen.end() == 0


def test_the_child_may_read_the_terminal_in_a_pipeline(screens: list[Screen], pawlock: Pawlock) -> None:
    """Such as a password prompt of `pawlock run deploy -- ssh … | tee log`."""
    screen = open_screen(
        screens, pawlock, *in_sh("pawlock run job -- sh -c 'echo name?; read x; echo hello $x' | cat")
    )
    screen.until(r"name\?\n")
    screen.type("world\n")
    screen.until("hello world\n")
    assert screen.end() == 0


@pytest.mark.slow
def test_a_script_has_its_terminal_back(screens: list[Screen], pawlock: Pawlock) -> None:
    screen = open_screen(
        screens, pawlock, *in_sh("pawlock run job -- true; echo name?; read x; echo hello $x")
    )
    screen.until(r"name\?\n")
    screen.type("world\n")
    screen.until("hello world\n")
    assert screen.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "once"])
def test_ctrl_c_ends_the_script_around(screens: list[Screen], pawlock: Pawlock, verb: str) -> None:
    screen = open_screen(
        screens, pawlock, *in_sh(f"pawlock {verb} job -- sh -c 'echo in; exec sleep 30'; echo after; true")
    )
    screen.until("in\n")
    screen.type("\x03")
    screen.end()
    assert "after" not in screen.text
    assert pawlock.left_over() == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, which goes on unless a command died")
@pytest.mark.parametrize("how", ["running", "waiting"])
def test_ctrl_c_ends_the_bash_script_around(screens: list[Screen], pawlock: Pawlock, how: str) -> None:
    """Bash goes on after a command that exits with 130: only one that died of the signal ends the script."""
    verb = {
        "running": "run job -- sh -c 'echo in; exec sleep 30'",
        "waiting": "run job -- true",
    }
    script = f'pawlock() {{ {shlex.join(PAWLOCK)} "$@"; }}; pawlock {verb[how]}; echo after; true'
    with pawlock.client.lock("job") if how == "waiting" else contextlib.nullcontext():
        screen = open_screen(screens, pawlock, "bash", "-c", script)
        screen.until({"running": "in\n", "waiting": "waiting for 'job'"}[how])
        screen.type("\x03")
        screen.end()
    assert "after" not in screen.text


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, for its loop at the prompt")
def test_ctrl_c_ends_the_loop_at_the_prompt(screens: list[Screen], pawlock: Pawlock) -> None:
    screen = open_screen(screens, pawlock, "bash", "--norc", "--noprofile", "-i")
    screen.until(r"\$ ")
    screen.type(
        f"for i in 1 2 3; do {shlex.join(PAWLOCK)} run job -- sh -c 'echo r''ound; exec sleep 30'; done\n"
    )
    screen.until("round\n")
    screen.type("\x03")
    screen.until(r"\$ ")
    screen.type("echo rc=$?; exit\n")
    screen.until("rc=130\n")
    screen.end()
    assert "round" not in screen.text
    assert pawlock.left_over() == []


@VERBS
def test_hang_up_ends_the_child(screens: list[Screen], pawlock: Pawlock, verb: str) -> None:
    screen = open_screen(screens, pawlock, *PAWLOCK, verb, "job", "--", "sh", "-c", "echo in; exec sleep 30")
    screen.until("in\n")
    screen.close()
    screens.clear()
    if verb == "run":
        pawlock.client.lock("job").acquire(timeout=5).release()
    else:
        state = pawlock.client.once("job").begin(wait=True, timeout=5)
        assert isinstance(state, library.Started)
        state.finish(None)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, for its job control")
@VERBS
def test_ctrl_z_and_fg(screens: list[Screen], pawlock: Pawlock, verb: str) -> None:
    screen = open_screen(screens, pawlock, "bash", "--norc", "--noprofile", "-i")
    screen.until(r"\$ ")
    # Built-in commands only: a shell that is stopped between vfork and exec of another one is not reported as stopped.
    script = "echo beg''in; read x; echo mid''dle $x; read y; echo got $y; exit 3"
    screen.type(f"{shlex.join(PAWLOCK)} {verb} --ttl 20 job -- sh -c {shlex.quote(script)}\n")
    screen.until("begin\n")
    screen.type("\x1a")
    screen.until(r"pawlock: stopped; the lock expires if this lasts longer than \d+ s")
    screen.until("Stopped")
    screen.until(r"\$ ")
    screen.type("fg\n")
    screen.until(f"{verb} --ttl")
    screen.type("of\n")
    screen.until("middle of\n")
    screen.type("it\n")
    screen.until("got it\n")
    screen.type("echo rc=$?\n")
    screen.until("rc=3\n")
    screen.type("exit\n")
    screen.end()
    assert pawlock.left_over() == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, for its job control")
def test_stopped_for_too_long(screens: list[Screen], pawlock: Pawlock) -> None:
    screen = open_screen(screens, pawlock, "bash", "--norc", "--noprofile", "-i")
    screen.until(r"\$ ")
    screen.type(f"{shlex.join(PAWLOCK)} run --ttl 1 job -- sh -c 'echo child $$; exec sleep 30'\n")
    child = int(screen.until(r"child (\d+)\n"))
    screen.type("\x1a")
    screen.until("Stopped")
    pawlock.client.lock("job").acquire(timeout=5).release()
    screen.type("fg\n")
    screen.until("pawlock: the lease of 'job' was lost")
    eventually(lambda: not lives(child), 1)
    screen.type("echo rc=$?\n")
    screen.until("rc=76\n")
    screen.type("exit\n")
    screen.end()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, for its job control")
def test_in_the_background_and_then_in_front(screens: list[Screen], pawlock: Pawlock) -> None:
    screen = open_screen(screens, pawlock, "bash", "--norc", "--noprofile", "-i")
    screen.until(r"\$ ")
    script = "echo na''me?; read x; echo hel''lo $x"
    screen.type(f"{shlex.join(PAWLOCK)} run --ttl 20 job -- sh -c {shlex.quote(script)} &\n")
    screen.until(r"name\?\n")
    time.sleep(1)
    screen.type("\n")
    screen.until("Stopped")
    screen.type("fg\n")
    screen.until("run --ttl")
    time.sleep(0.5)
    screen.type("world\n")
    screen.until("hello world\n")
    screen.type("exit\n")
    screen.end()
    assert pawlock.left_over() == []
