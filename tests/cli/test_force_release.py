"""`pawlock force-release`: it asks on a terminal, and nobody is robbed by accident."""

import json
import re
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, Pawlock, eventually
from tests.cli.screen import Screen, open_screen


def trail(pawlock: Pawlock) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(pawlock.call("show", "--json", "job")[1])["audit"]
    return found


def test_it_takes_the_lock_and_writes_who_and_why(pawlock: Pawlock) -> None:
    lease = pawlock.client.lock("job", ttl=3).acquire()
    holder = pawlock.client.inspect("job").holder
    code, out, err = pawlock.call("force-release", "--yes", "--reason", "it hangs", "--json", "job")
    forced = json.loads(out)
    assert (code, err, forced["kind"], forced["count"]) == (0, "", "lock", 1)
    assert forced["holder"] == holder
    eventually(lambda: lease.lost)
    (entry,) = trail(pawlock)
    assert (entry["name"], entry["text"], entry["outcome"]) == ("job", "it hangs", "released")
    assert entry["fence"] == forced["fence"]
    assert "it hangs" in pawlock.call("show", "job")[1]
    assert json.loads(pawlock.call("show", "--json", "job")[1])["audit"] == [entry]
    assert json.loads(pawlock.call("show", "--json", "other")[1])["audit"] == []


def test_the_audit_log_names_a_person(pawlock: Pawlock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who called `sudo`, else who is logged in, and on which host; or whoever `--by` names."""
    force = ("force-release", "--yes", "--reason", "x", "job")
    host = socket.gethostname()
    for environ, more, who in (
        ({"SUDO_USER": "alice", "LOGNAME": "root", "USER": "root"}, (), f"alice@{host}"),
        ({"SUDO_USER": "", "LOGNAME": "bob", "USER": "bob"}, (), f"bob@{host}"),
        ({"SUDO_USER": "alice"}, ("--by", "Carol, INC-17"), "Carol, INC-17"),
    ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        lease = pawlock.client.lock("job").acquire()
        assert pawlock.run(*force, *more)[0] == 0
        assert trail(pawlock)[0]["who"] == who
        assert f"by {who}: x" in pawlock.call("show", "job")[1]
        eventually(lambda one=lease: one.lost)  # type: ignore[misc]


def test_the_next_waiter_gets_it(pawlock: Pawlock) -> None:
    held = pawlock.client.lock("job", ttl=3).acquire()
    with library.connect(pawlock.server.url) as other, ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(other.lock("job").acquire, timeout=20)
        eventually(lambda: pawlock.waiting("job") == 1)
        assert pawlock.call("force-release", "-y", "--reason", "x", "job")[0] == 0
        with waiter.result() as following:
            assert following.fence > held.fence
    eventually(lambda: held.lost)


def test_it_asks_and_takes_no_for_an_answer(pawlock: Pawlock, screens: list[Screen]) -> None:
    with pawlock.client.lock("job") as held:
        holder = re.escape(pawlock.client.inspect("job").holder)
        screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
        screen.until(rf"'job' is held by {holder} for \S+\. Force release\? \[y/N\]: ")
        screen.type("\n")
        assert screen.end() == 1
        assert trail(pawlock) == []
        held.check()


def test_it_asks_and_then_why(pawlock: Pawlock, screens: list[Screen]) -> None:
    lease = pawlock.client.lock("job", ttl=6).acquire()
    screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
    screen.until(r"\[y/N\]: ")
    screen.type("y\n")
    screen.until("Reason: ")
    screen.type("it is stuck\n")
    screen.until("'job' was force-released from ")
    assert screen.end() == 0
    assert [entry["text"] for entry in trail(pawlock)] == ["it is stuck"]
    eventually(lambda: lease.lost)


def test_ctrl_c_at_the_question_does_nothing(pawlock: Pawlock, screens: list[Screen]) -> None:
    with pawlock.client.lock("job") as held:
        screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
        screen.until(r"\[y/N\]: ")
        screen.type("\x03")
        assert screen.end() == -signal.SIGINT
        assert trail(pawlock) == []
        held.check()


def test_without_a_terminal_it_never_asks(pawlock: Pawlock) -> None:
    with pawlock.client.lock("job") as held:
        for arguments in (("job",), ("--reason", "x", "job"), ("--yes", "job")):
            code, out, err = pawlock.call("force-release", *arguments)
            assert (code, out) == (64, "")
            assert err.startswith("pawlock: ")
        assert trail(pawlock) == []
        held.check()


def test_nothing_released_is_an_error(pawlock: Pawlock) -> None:
    code, out, err = pawlock.call("force-release", "-y", "--reason", "x", "job")
    assert (code, out, err.count("\n")) == (76, "", 1)
    assert "'job': nobody holds it as lock" in err
    with pawlock.client.lock("job") as held:
        assert pawlock.call("force-release", "-y", "--reason", "x", "--kind", "once", "job")[0] == 76
        assert pawlock.call("force-release", "-y", "--reason", "x", "--holder", "a/b", "job")[0] == 76
        held.check()


TAKES: dict[str, Callable[[library.Client], Any]] = {
    "semaphore": lambda client: client.semaphore("job", permits=2).acquire(),
    "rwlock": lambda client: client.rwlock("job").read.acquire(),
    "election": lambda client: client.election("job").campaign(),
    "once": lambda client: client.once("job").begin(),
}


def test_it_finds_out_as_what_it_is_held(pawlock: Pawlock) -> None:
    for kind, take in TAKES.items():
        lease = take(pawlock.client)
        lease = getattr(lease, "lease", lease)
        if kind == "rwlock":
            with pawlock.client.lock("job") as other:
                code, out, err = pawlock.call("force-release", "-y", "--reason", "x", "job")
                assert (code, out) == (64, "")
                assert "held as lock and rwlock: choose one with --kind" in err
                assert pawlock.call("force-release", "-y", "--reason", "x", "--kind", kind, "job")[0] == 0
                other.check()
        else:
            code, out, err = pawlock.call("force-release", "-y", "--reason", "x", "--json", "job")
            assert (code, err, json.loads(out)["kind"]) == (0, "", kind)
        with pytest.raises((library.NotHeld, library.LeaseLost)):
            lease.extend(30)


@pytest.mark.slow
def test_it_asks_about_each_kind_and_of_what_is_free_nothing(pawlock: Pawlock, screens: list[Screen]) -> None:
    screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
    screen.until("nobody holds it as lock")
    assert screen.end() == 76
    with pawlock.client.semaphore("job", permits=2).acquire() as lease:
        screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
        screen.until("'job' is held as semaphore by ")
        screen.type("n\n")
        assert screen.end() == 1
        lease.check()
