"""`pawlock acquire` and `pawlock release`, in a shell script and by hand."""

import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, Pawlock, environment, eventually

pytestmark = pytest.mark.slow

PREAMBLE = f'pawlock() {{ {shlex.join(PAWLOCK)} "$@"; }}\n'


def script(pawlock: Pawlock, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", PREAMBLE + text],
        env=environment(PAWLOCK_URL=pawlock.server.url),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_script_takes_a_lock_and_gives_it_back(pawlock: Pawlock) -> None:
    done = script(
        pawlock,
        """
        vars=$(pawlock acquire --ttl 60 "it's mine") || exit
        eval "$vars"
        echo "$PAWLOCK_LOCK_NAME|$PAWLOCK_FENCE"
        pawlock acquire -n "it's mine" >/dev/null 2>&1; echo "busy $?"
        pawlock release; echo "released $?"
        pawlock acquire -n -t "it's mine" >/dev/null; echo "free $?"
        """,
    )
    assert done.stderr == ""
    name, busy, released, free = done.stdout.splitlines()
    assert re.fullmatch(r"it's mine\|\d{16}", name)
    assert (busy, released, free) == ("busy 75", "released 0", "free 0")


def test_as_json_with_ttl_and_fence(pawlock: Pawlock) -> None:
    made = json.loads(pawlock.run("acquire", "--json", "--ttl", "40", "job")[1])
    with library.connect(pawlock.server.url) as client:
        info = client.inspect("job")
    assert (made["name"], made["fence"], made["ttl"]) == ("job", info.fence, 40.0)
    assert 35 < info.ttl_left <= 40
    code, out, err = pawlock.run("release", "--json", made["ticket"])
    assert (code, json.loads(out), err) == (0, {"name": "job", "fence": info.fence, "released": True}, "")


def test_nobody_renews_it(pawlock: Pawlock) -> None:
    ticket = pawlock.run("acquire", "-t", "--ttl", "1", "job")[1]
    time.sleep(1.1)
    assert pawlock.run("acquire", "-n", "-t", "job")[0] == 0
    code, out, err = pawlock.run("release", ticket.strip())
    assert (code, out) == (76, "")
    assert "[ADOPT_FAILED]" in err
    assert err.count("\n") == 1
    assert pawlock.run("acquire", "-n", "job")[0] == 75, "the present holder was disturbed"


def test_one_that_was_waited_for_has_its_whole_ttl(pawlock: Pawlock) -> None:
    first = pawlock.run("acquire", "-t", "job")[1].strip()
    second = pawlock.start("acquire", "-t", "--ttl", "50", "job")
    eventually(lambda: pawlock.waiting("job") == 1)
    assert pawlock.run("release", first)[0] == 0
    assert second.end()[0] == 0
    left = pawlock.server.command("PTTL", "pawlock:job")
    assert isinstance(left, int)
    assert left > 40_000


def test_it_is_listed_for_as_long_as_it_lives(pawlock: Pawlock) -> None:
    ticket = pawlock.run("acquire", "-t", "--ttl", "60", "job")[1].strip()
    (found,) = json.loads(pawlock.run("ls", "--json")[1])
    assert (found["name"], found["owner"]) == ("job", f"pawlock acquire, by {os.getpid()}")
    assert pawlock.run("release", ticket)[0] == 0
    assert json.loads(pawlock.run("ls", "--json")[1]) == []


def test_the_ticket_may_come_from_standard_input(pawlock: Pawlock) -> None:
    ticket = pawlock.run("acquire", "-t", "job")[1]
    command = pawlock.start("release", "-", stdin=subprocess.PIPE)
    command.process.communicate(ticket, timeout=15)
    assert command.process.returncode == 0
    assert pawlock.run("acquire", "-n", "job")[0] == 0


def test_a_ticket_of_a_program(pawlock: Pawlock) -> None:
    with library.connect(pawlock.server.url) as client:
        ticket = client.lock("job").acquire().detach()
        assert pawlock.run("release", ticket)[0] == 0
        assert not client.lock("job").locked()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_and_leaves_nothing(pawlock: Pawlock, number: signal.Signals) -> None:
    pawlock.hold("job")
    waiter = pawlock.start("acquire", "job")
    eventually(lambda: pawlock.waiting("job") == 1)
    waiter.send(number)
    # Ctrl-C ends it by the signal, so that a script around it ends as well.
    code = -number if number == signal.SIGINT else 128 + number
    assert waiter.end() == (code, "", "")
    assert pawlock.waiting("job") == 0


def test_one_whose_ticket_nobody_got_is_free_again(pawlock: Pawlock) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        done = subprocess.run(
            [*PAWLOCK, "acquire", "job"],
            env=environment(PAWLOCK_URL=pawlock.server.url),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 74
    assert pawlock.run("acquire", "-n", "job")[0] == 0


def test_the_wait_is_over(pawlock: Pawlock) -> None:
    holder = pawlock.hold("job")
    code, out, err = pawlock.run("acquire", "-w", "0.5", "job")
    assert (code, out) == (75, "")
    assert f":{holder.pid}/" in err
    assert "[LOCK_TIMEOUT]" in err
    assert err.count("\n") == 1


def test_one_is_renewed_by_its_ticket(pawlock: Pawlock) -> None:
    done = script(
        pawlock,
        """
        vars=$(pawlock acquire --ttl 20 job) || exit
        eval "$vars"
        for i in 1 2; do pawlock renew || exit; done
        pawlock acquire -n job >/dev/null 2>&1; echo "busy $?"
        pawlock release; echo "released $?"
        pawlock renew 2>/dev/null; echo "lost $?"
        """,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["busy 75", "released 0", "lost 76"]


def test_the_ticket_that_was_renewed_stays_listed(pawlock: Pawlock) -> None:
    made = json.loads(pawlock.run("acquire", "--json", "--ttl", "20", "job")[1])
    (before,) = json.loads(pawlock.run("ls", "--json")[1])
    code, out, err = pawlock.run("renew", "--json", "--ttl", "60", made["ticket"])
    renewed = json.loads(out)
    assert (code, renewed["name"], renewed["fence"], err) == (0, "job", made["fence"], "")
    assert 30 < renewed["remaining"] <= 60
    (after,) = json.loads(pawlock.run("ls", "--json")[1])
    assert {key: after[key] for key in ("name", "owner", "since", "fence")} == {
        key: before[key] for key in ("name", "owner", "since", "fence")
    }
    assert pawlock.run("renew", "--ttl", "1", made["ticket"])[0] == 0
    # One record, which lives as long as the lock; a shorter TTL shortens neither.
    records = pawlock.server.command("KEYS", "{pawlock}:1:session:*")
    assert isinstance(records, list)
    assert len(records) == 1
    for key in (b"pawlock:job", bytes(records[0])):  # type: ignore[arg-type]
        left = pawlock.server.command("PTTL", key)
        assert isinstance(left, int)
        assert left > 30_000


def test_what_is_lost_is_not_renewed(pawlock: Pawlock) -> None:
    ticket = pawlock.run("acquire", "-t", "--ttl", "1", "job")[1].strip()
    time.sleep(1.1)
    code, out, err = pawlock.run("renew", ticket)
    assert (code, out) == (76, "")
    assert "[EXTEND_FAILED]" in err
    assert err.count("\n") == 1
    assert pawlock.run("acquire", "-n", "job")[0] == 0
    assert pawlock.run("renew", ticket)[0] == 76
    assert pawlock.run("renew", "--namespace", "other", ticket)[0] == 64
