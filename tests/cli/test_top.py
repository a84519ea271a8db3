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
from pawlock.cli._screen import footer, heading
from pawlock.cli._view import KEYS, Contention, View
from pawlock.model import LockInfo
from tests.cli.conftest import PAWLOCK, Pawlock, eventually
from tests.cli.screen import Screen, open_screen
from tests.support.pace import pace

TERM = "xterm-256color"


@pytest.fixture
def held(pawlock: Pawlock) -> Iterator[library.Client]:
    with library.connect(pawlock.server.url) as client:
        leases = [client.lock(name).acquire() for name in ("apple", "pear", "plum")]
        eventually(lambda: len(client.locks()) == 3)
        yield client
        for lease in leases:
            lease.release()


def rows(text: str) -> list[str]:
    """The names on the last whole screen."""
    return re.findall(r"\b(apple|pear|plum)\b", text.rpartition("pawlock top")[2])


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


def test_no_colours_on_request(pawlock: Pawlock, held: library.Client, screens: list[Screen]) -> None:
    screen = open_screen(screens, pawlock, *PAWLOCK, "top", term=TERM)  # the tests set NO_COLOR
    screen.until("plum")
    screen.type("q")
    screen.end()
    assert not re.search(r"\033\[[0-9;]*3[0-7][0-9;]*m", screen.text)


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
    code, out, err = pawlock.run("top")
    assert (code, err) == (0, "")
    assert rows("pawlock top" + out) == ["apple", "pear", "plum"]
    assert "\033" not in out
    code, out, err = pawlock.run("top", "--json", "-n", "2", "--interval", "0.1", "--filter", "p*")
    looks = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [[one["name"] for one in look["locks"]] for look in looks] == [["pear", "plum"]] * 2
    assert looks[0]["locks"][0]["contention"] == 0


def info(name: str, waiters: int = 0) -> LockInfo:
    return LockInfo(name, True, "h:1/t", False, 10.0, 1, 1, waiters, kind="lock", since=time.time())


def test_contention_is_what_waited_on_average() -> None:
    contention = Contention()
    for waiters in (0, 4, 2):
        contention.note([info("a", waiters)])
    assert contention.of(info("a")) == 2.0
    contention.note([info("b")])
    contention.note([info("a", 1)])
    assert contention.of(info("a")) == 1.0, "a name that was free in between begins anew"


def test_moving_stops_at_both_ends() -> None:
    view = View(order="name", height=3)
    view.update([info(f"{number}") for number in range(8)])
    assert [one.name for one in view.shown()] == ["0", "1", "2"]
    view.press("k")
    assert view.shown()[0].name == "0"
    for _ in range(9):
        view.press("\033[6~")
        view.shown()
    assert [one.name for one in view.shown()] == ["5", "6", "7"]
    view.press("\033[A")
    assert [one.name for one in view.shown()] == ["4", "5", "6"]
    assert not view.press("x")
    assert view.press("q")


@pytest.mark.parametrize("width", [80, 110, 200])
def test_all_keys_are_on_the_last_line(width: int) -> None:
    for order in KEYS.values():
        for reverse in (False, True):
            line = footer(View(order=order, reverse=reverse), width)
            assert len(line) <= width
            assert order in line
            assert all(key in line for key in ("q quit", "/ filter", "j k", "reverse"))


def test_which_rows_are_on_the_screen_is_said_if_not_all_are() -> None:
    view = View(height=20)
    infos = [LockInfo(f"job:{number}", True, "vm:1/a", False, 20.0, 1, 1, 0) for number in range(21)]
    view.update(infos[:20])
    assert heading(view) == "20 held for 1 s or more   0 waiting"
    view.update(infos)
    assert heading(view).endswith("   rows 1-20")
    view.press("j")
    assert len(view.shown()) == 20
    assert heading(view).endswith("   rows 2-21")
    view.wanted = "job:1"
    assert heading(view).endswith("   11 match 'job:1'")


def test_q_in_the_filter_is_a_letter() -> None:
    view = View()
    view.update([info("queue"), info("other")])
    for key in ("/", "q", "u", "x", "\x7f", "\r"):
        assert not view.press(key)
    assert [one.name for one in view.rows()] == ["queue"]
    view.press("\033")
    assert len(view.rows()) == 2
    assert view.press("q")


def test_a_narrow_terminal_still_shows_names() -> None:
    from pawlock.cli._screen import HEADS, fitting

    row = [
        "order:" + "x" * 30,
        "lock",
        "web:12345/MainThread",
        "10s",
        "20s",
        "1795267823137511",
        "3",
        "████ 1.0",
    ]
    assert fitting([row], 200) == list(range(len(HEADS)))
    assert [HEADS[at] for at in fitting([row], 80)] == ["NAME", "HOLDER", "AGE", "TTL LEFT", "WAITERS"]
    assert fitting([row], 20) == [0]
    # One long name beside it hides no holder.
    long = ["tenant/42/" + "x" * 90, row[1], "vm:20181/ThreadPoolExecutor-0_15", *row[3:]]
    assert [HEADS[at] for at in fitting([row, long], 80)] == ["NAME", "HOLDER", "AGE", "TTL LEFT", "WAITERS"]
    assert [HEADS[at] for at in fitting([row, long], 70)] == ["NAME", "HOLDER", "WAITERS"]
    assert fitting([], 200) == list(range(len(HEADS)))


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
