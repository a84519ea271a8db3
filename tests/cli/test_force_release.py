"""`pawlock force-release`: it asks on a terminal, and nobody is robbed by accident."""

import json
import signal

import pawlock as library
from tests.cli.conftest import PAWLOCK, Pawlock, eventually
from tests.cli.screen import Screen, open_screen


def trail(pawlock: Pawlock) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(pawlock.run("audit", "--json")[1])
    return found


def test_it_takes_the_lock_and_writes_who_and_why(pawlock: Pawlock) -> None:
    holder = pawlock.hold("job")
    code, out, err = pawlock.run("force-release", "--yes", "--reason", "it hangs", "--json", "job")
    forced = json.loads(out)
    assert (code, err, forced["released"]) == (0, "", True)
    assert f":{holder.pid}/" in forced["holder"]
    assert holder.end()[0] == 76
    (entry,) = trail(pawlock)
    assert (entry["name"], entry["text"], entry["outcome"]) == ("job", "it hangs", "released")
    assert entry["fence"] == forced["fence"]
    assert "it hangs" in pawlock.run("audit")[1]
    assert "it hangs" in pawlock.run("show", "job")[1]
    assert json.loads(pawlock.run("show", "--json", "job")[1])["audit"] == [entry]
    assert json.loads(pawlock.run("show", "--json", "other")[1])["audit"] == []


def test_the_next_waiter_gets_it(pawlock: Pawlock) -> None:
    with library.connect(pawlock.server.url) as client:
        held = client.lock("job").acquire()
        waiter = pawlock.start("run", "-w", "20", "job", "--", "sh", "-c", "echo $PAWLOCK_FENCE")
        eventually(lambda: pawlock.waiting("job") == 1)
        assert pawlock.run("force-release", "-y", "--reason", "x", "job")[0] == 0
        code, out, _ = waiter.end()
        assert code == 0
        assert int(out) > held.fence


def test_it_asks_and_takes_no_for_an_answer(pawlock: Pawlock, screens: list[Screen]) -> None:
    holder = pawlock.hold("job")
    screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
    screen.until(rf"'job' is held by \S+:{holder.pid}/\S+ for \S+\. Force release\? \[y/N\]: ")
    screen.type("\n")
    assert screen.end() == 1
    assert trail(pawlock) == []
    assert pawlock.run("run", "-nq", "job", "--", "true")[0] == 75


def test_it_asks_and_then_why(pawlock: Pawlock, screens: list[Screen]) -> None:
    pawlock.hold("job")
    screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
    screen.until(r"\[y/N\]: ")
    screen.type("y\n")
    screen.until("Reason: ")
    screen.type("it is stuck\n")
    screen.until("'job' was force-released from ")
    assert screen.end() == 0
    assert [entry["text"] for entry in trail(pawlock)] == ["it is stuck"]


def test_ctrl_c_at_the_question_does_nothing(pawlock: Pawlock, screens: list[Screen]) -> None:
    pawlock.hold("job")
    screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
    screen.until(r"\[y/N\]: ")
    screen.type("\x03")
    assert screen.end() == -signal.SIGINT
    assert trail(pawlock) == []
    assert pawlock.run("run", "-nq", "job", "--", "true")[0] == 75


def test_without_a_terminal_it_never_asks(pawlock: Pawlock) -> None:
    pawlock.hold("job")
    for arguments in (("job",), ("--reason", "x", "job"), ("--yes", "job")):
        code, out, err = pawlock.run("force-release", *arguments)
        assert (code, out) == (64, "")
        assert err.startswith("pawlock: ")
    assert trail(pawlock) == []


def test_a_name_that_is_held_as_a_semaphore(pawlock: Pawlock, screens: list[Screen]) -> None:
    said = "'job' is free as a lock; the semaphore of that name is still held\n"
    with library.connect(pawlock.server.url) as client, client.semaphore("job", permits=2).acquire() as lease:
        assert pawlock.run("force-release", "-y", "--reason", "x", "job") == (0, said, "")
        told = json.loads(pawlock.run("force-release", "-y", "--reason", "x", "--json", "job")[1])
        assert (told["released"], told["held_as"]) == (False, "semaphore")
        screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
        screen.until("the semaphore of that name is still held\n")
        assert screen.end() == 0
        lease.check()


def test_a_free_name(pawlock: Pawlock, screens: list[Screen]) -> None:
    assert pawlock.run("force-release", "-y", "--reason", "x", "job") == (0, "'job' is free\n", "")
    screen = open_screen(screens, pawlock, *PAWLOCK, "force-release", "job")
    screen.until("'job' is free\n")
    assert screen.end() == 0
