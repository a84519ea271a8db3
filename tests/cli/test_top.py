"""`pawlock top` at a terminal: what it shows, and that the terminal is as it was."""

import json
import os
import re
import shlex
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, Pawlock, eventually
from tests.cli.screen import Screen, open_screen
from tests.support.pace import pace

TERM = "xterm-256color"
LEFT = r"\033\[\?1049l"
"""What gives a terminal its own screen back."""


@pytest.fixture
def held(pawlock: Pawlock) -> Iterator[library.Client]:
    leases = [pawlock.client.lock(name).acquire() for name in ("apple", "pear", "plum")]
    eventually(lambda: len(pawlock.client.locks()) == 3)
    yield pawlock.client
    for lease in leases:
        lease.release()


def names(text: str) -> list[str]:
    return re.findall(r"\b(apple|pear|plum)\b", text)


@pytest.mark.usefixtures("held")
def test_it_shows_what_is_held_until_a_signal_ends_it(pawlock: Pawlock, screens: list[Screen]) -> None:
    waiter = pawlock.start("run", "plum", "--", "true")
    eventually(lambda: pawlock.waiting("plum") == 1)
    screen = open_screen(screens, pawlock, *PAWLOCK, "top", "--interval", "0.3", "--filter", "p", term=TERM)
    screen.until(r"3 held, 1 waiting(?s:.*?)plum(?s:.*?)apple(?s:.*?)pear")
    waiter.send(signal.SIGTERM)
    screen.until(r"3 held, 0 waiting(?s:.*?)apple(?s:.*?)pear(?s:.*?)plum")
    assert not re.search(r"\033\[[0-9;]*3[0-7][0-9;]*m", screen.text), "the tests set NO_COLOR"
    os.kill(screen.pid, signal.SIGTERM)
    screen.until(LEFT)
    assert screen.end() == 143


@pytest.mark.slow
@pytest.mark.usefixtures("held")
def test_the_terminal_is_as_it_was(pawlock: Pawlock, screens: list[Screen]) -> None:
    screen = open_screen(
        screens,
        pawlock,
        "sh",
        "-c",
        f'trap : INT; "{PAWLOCK[0]}" -m pawlock top; echo "rc=$?"; read x; echo got $x',
        term=TERM,
    )
    screen.until("apple")
    screen.type("\x03")
    screen.until(LEFT)
    screen.until("rc=130\n")
    screen.type("it\n")
    screen.until("got it\n")
    assert screen.end() == 0


@pytest.mark.slow
def test_it_goes_on_while_the_server_is_away(pawlock_alone: Pawlock, screens: list[Screen]) -> None:
    screen = open_screen(screens, pawlock_alone, *PAWLOCK, "top", "--interval", "0.2", term=TERM)
    screen.until("0 held")
    pawlock_alone.server.kill()
    # Sooner than a caller who waits is told: what stands there looks as if it were so.
    screen.until(r"last answer \d s ago: ", 8)
    pawlock_alone.server.restart(keep_data=False)
    with library.connect(pawlock_alone.server.url) as client, client.lock("back"):
        screen.until("back", 30)
    pawlock_alone.server.kill()
    time.sleep(0.5)
    began = time.monotonic()
    screen.type("\x03")
    assert screen.end() == -signal.SIGINT
    assert time.monotonic() - began < pace() * 4


@pytest.mark.parametrize("width", [60, 80, 132])
def test_a_narrow_terminal_cuts_names_and_no_numbers(
    pawlock: Pawlock, screens: list[Screen], width: int
) -> None:
    exports = pawlock.client.semaphore("tenant/42/" + "x" * 80, permits=12)
    taken = [exports.acquire() for _ in range(12)]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(exports.acquire, timeout=30)
        eventually(lambda: [info.waiting for info in pawlock.client.locks()] == [1])
        top = shlex.join([*PAWLOCK, "top", "--interval", "0.2"])
        screen = open_screen(
            screens, pawlock, "sh", "-c", f"stty cols {width} rows 24; exec {top}", term=TERM
        )
        screen.until(r"1 held, 1 waiting, longest \d\.\ds; Ctrl-C quits")
        head = re.sub(r"\033\[\d+m", "", screen.until(r"(NAME\b[^\n]*)\n"))
        assert re.match("NAME +WAIT +WAITERS +HOLDER +AGE", head)
        row = screen.until(r"(tenant/42/x+… +\d\.\ds +1 +\S+ \+11 +\d\.\ds[ a-z0-9]*)")
        assert len(head) <= width
        assert len(row) <= width
        assert ("KIND" in head, "TTL LEFT" in head) == (width > 60, width > 80)
        screen.type("\x03")
        screen.end()
        taken.pop().release()
        taken.append(waiting.result(10))
    for lease in taken:
        lease.release()


@pytest.mark.usefixtures("held")
def test_where_there_is_no_terminal(pawlock: Pawlock) -> None:
    code, out, err = pawlock.call("top", "--sort", "name")
    assert (code, err) == (0, "")
    assert names(out) == ["apple", "pear", "plum"]
    assert "\033" not in out
    code, out, err = pawlock.call("top", "--json", "-n", "2", "--interval", "0.1", "--filter", "p*")
    looks = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [[one["name"] for one in look["locks"]] for look in looks] == [["pear", "plum"]] * 2
