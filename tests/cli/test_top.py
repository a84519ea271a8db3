"""`pawlock top` at a terminal: what it shows, its keys, and that the terminal is as it was."""

import json
import os
import re
import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, Pawlock, eventually
from tests.cli.screen import Screen, open_screen
from tests.support.pace import pace

TERM = "xterm-256color"


@pytest.fixture
def held(pawlock: Pawlock) -> Iterator[library.Client]:
    leases = [pawlock.client.lock(name).acquire() for name in ("apple", "pear", "plum")]
    eventually(lambda: len(pawlock.client.locks()) == 3)
    yield pawlock.client
    for lease in leases:
        lease.release()


def rows(text: str) -> list[str]:
    """The names on the last whole screen."""
    return re.findall(r"\b(apple|pear|plum)\b", text.rpartition("pawlock top")[2])


@pytest.mark.slow
def test_it_shows_what_is_held_and_sorts_and_filters(
    pawlock: Pawlock, held: library.Client, screens: list[Screen]
) -> None:
    waiter = pawlock.start("run", "plum", "--", "true")
    eventually(lambda: pawlock.waiting("plum") == 1)
    screen = open_screen(screens, pawlock, *PAWLOCK, "top", "--interval", "0.3", term=TERM)
    screen.until(r"3 held for 1 s or more   1 waiting(?s:.*?)plum(?s:.*?)apple(?s:.*?)pear")
    screen.type("n")
    screen.until(r"(?s)apple.*?pear.*?plum.*?by name ")
    screen.type("r")
    screen.until(r"(?s)plum.*?pear.*?apple.*?by name, reversed")
    screen.type("/pe")
    screen.until(r"1 match 'pe'")
    screen.type("\n")
    screen.until(r"(?s)pear.*?by name")
    screen.text = ""
    screen.until("by name")
    assert set(rows(screen.text)) <= {"pear"}
    screen.type("q")
    assert screen.end() == 0
    assert "\033[?1049l" in screen.text
    waiter.send(signal.SIGTERM)


@pytest.mark.slow
def test_the_terminal_is_as_it_was(pawlock: Pawlock, held: library.Client, screens: list[Screen]) -> None:
    screen = open_screen(
        screens,
        pawlock,
        "sh",
        "-c",
        f'trap : INT; "{PAWLOCK[0]}" -m pawlock top; echo "rc=$?"; read x; echo got $x',
        term=TERM,
    )
    screen.until("apple")
    assert not termios.tcgetattr(screen._file)[3] & termios.ECHO
    screen.type("\x03")
    screen.until("rc=130\n")
    assert termios.tcgetattr(screen._file)[3] & termios.ECHO
    screen.type("it\n")
    screen.until("got it\n")
    assert screen.end() == 0


def test_a_signal_gives_the_terminal_back(
    pawlock: Pawlock, held: library.Client, screens: list[Screen]
) -> None:
    screen = open_screen(screens, pawlock, *PAWLOCK, "top", term=TERM)
    screen.until("apple")
    os.kill(screen.pid, signal.SIGTERM)
    screen.until(r"\033\[\?1049l")
    assert screen.end() == 143


@pytest.mark.slow
def test_no_colours_on_request(pawlock: Pawlock, held: library.Client, screens: list[Screen]) -> None:
    screen = open_screen(screens, pawlock, *PAWLOCK, "top", term=TERM)  # the tests set NO_COLOR
    screen.until("plum")
    screen.type("q")
    screen.end()
    assert not re.search(r"\033\[[0-9;]*3[0-7][0-9;]*m", screen.text)


@pytest.mark.slow
def test_it_goes_on_while_the_server_is_away(pawlock_alone: Pawlock, screens: list[Screen]) -> None:
    screen = open_screen(screens, pawlock_alone, *PAWLOCK, "top", "--interval", "0.2", term=TERM)
    screen.until("0 held")
    pawlock_alone.server.kill()
    screen.until(r"server not responding for \d+ s|last answer \d+ s ago")
    pawlock_alone.server.restart(keep_data=False)
    with library.connect(pawlock_alone.server.url) as client, client.lock("back"):
        screen.until("back", 30)
        screen.type("q")
        assert screen.end() == 0


@pytest.mark.slow
def test_quitting_does_not_wait_for_a_dead_server(pawlock_alone: Pawlock, screens: list[Screen]) -> None:
    screen = open_screen(screens, pawlock_alone, *PAWLOCK, "top", "--interval", "0.2", term=TERM)
    screen.until("0 held")
    pawlock_alone.server.kill()
    screen.until("not responding")
    began = time.monotonic()
    screen.type("q")
    assert screen.end() == 0
    assert time.monotonic() - began < pace() * 4


def test_where_there_is_no_terminal(pawlock: Pawlock, held: library.Client) -> None:
    code, out, err = pawlock.call("top")
    assert (code, err) == (0, "")
    assert rows("pawlock top" + out) == ["apple", "pear", "plum"]
    assert "\033" not in out
    code, out, err = pawlock.call("top", "--json", "-n", "2", "--interval", "0.1", "--filter", "p*")
    looks = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [[one["name"] for one in look["locks"]] for look in looks] == [["pear", "plum"]] * 2
    assert looks[0]["locks"][0]["contention"] == 0


@pytest.mark.slow
def test_five_hundred_locks_cost_less_than_a_tenth_of_a_core(pawlock: Pawlock, screens: list[Screen]) -> None:
    def used(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with library.connect(pawlock.server.url) as client:
        leases = [client.lock(f"order:{number:04}").acquire() for number in range(500)]
        eventually(lambda: len(client.locks()) == 500)
        screen = open_screen(screens, pawlock, *PAWLOCK, "top", "--sort", "name", term=TERM)
        screen.until("500 held(?s:.*?)order:0000")
        before, began = used(screen.pid), time.monotonic()
        while time.monotonic() - began < 10:
            screen.until("500 held")
        assert used(screen.pid) - before < 0.1 * (time.monotonic() - began)
        screen.type("q")
        assert screen.end() == 0
        for lease in leases:
            lease.release()
