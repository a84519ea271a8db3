"""What `pawlock top` keeps of its looks, does at a key, and fits into a terminal."""

import itertools
import time

from pawlock.cli._screen import HEADS, fitting, footer, heading
from pawlock.cli._view import KEYS, Contention, View
from pawlock.model import LockInfo


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


def test_all_keys_are_on_the_last_line() -> None:
    for width, order, reverse in itertools.product((80, 110, 200), KEYS.values(), (False, True)):
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
