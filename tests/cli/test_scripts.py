"""`pawl acquire` and `pawl release`, in a shell script and by hand."""

import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest

import pawl as library
from tests.cli.conftest import PAWL, Pawl, environment, eventually

PREAMBLE = f'pawl() {{ {shlex.join(PAWL)} "$@"; }}\n'


def script(pawl: Pawl, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", PREAMBLE + text],
        env=environment(PAWL_URL=pawl.server.url),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_script_takes_a_lock_and_gives_it_back(pawl: Pawl) -> None:
    done = script(
        pawl,
        """
        vars=$(pawl acquire --ttl 60 "it's mine") || exit
        eval "$vars"
        echo "$PAWL_LOCK_NAME|$PAWL_FENCE"
        pawl acquire -n "it's mine" >/dev/null 2>&1; echo "busy $?"
        pawl release; echo "released $?"
        pawl acquire -n -t "it's mine" >/dev/null; echo "free $?"
        """,
    )
    assert done.stderr == ""
    name, busy, released, free = done.stdout.splitlines()
    assert re.fullmatch(r"it's mine\|\d{16}", name)
    assert (busy, released, free) == ("busy 75", "released 0", "free 0")


def test_as_json_with_ttl_and_fence(pawl: Pawl) -> None:
    made = json.loads(pawl.run("acquire", "--json", "--ttl", "40", "job")[1])
    with library.connect(pawl.server.url) as client:
        info = client.inspect("job")
    assert (made["name"], made["fence"], made["ttl"]) == ("job", info.fence, 40.0)
    assert 35 < info.ttl_left <= 40
    code, out, err = pawl.run("release", "--json", made["ticket"])
    assert (code, json.loads(out), err) == (0, {"name": "job", "fence": info.fence, "released": True}, "")


def test_nobody_renews_it(pawl: Pawl) -> None:
    ticket = pawl.run("acquire", "-t", "--ttl", "1", "job")[1]
    time.sleep(1.1)
    assert pawl.run("acquire", "-n", "-t", "job")[0] == 0
    code, out, err = pawl.run("release", ticket.strip())
    assert (code, out) == (76, "")
    assert "[ADOPT_FAILED]" in err
    assert err.count("\n") == 1
    assert pawl.run("acquire", "-n", "job")[0] == 75, "the present holder was disturbed"


def test_one_that_was_waited_for_has_its_whole_ttl(pawl: Pawl) -> None:
    first = pawl.run("acquire", "-t", "job")[1].strip()
    second = pawl.start("acquire", "-t", "--ttl", "50", "job")
    eventually(lambda: pawl.waiting("job") == 1)
    assert pawl.run("release", first)[0] == 0
    assert second.end()[0] == 0
    left = pawl.server.command("PTTL", "pawl:job")
    assert isinstance(left, int)
    assert left > 40_000


def test_it_is_listed_for_as_long_as_it_lives(pawl: Pawl) -> None:
    ticket = pawl.run("acquire", "-t", "--ttl", "60", "job")[1].strip()
    (found,) = json.loads(pawl.run("ls", "--json")[1])
    assert (found["name"], found["owner"]) == ("job", f"pawl acquire, by {os.getpid()}")
    assert pawl.run("release", ticket)[0] == 0
    assert json.loads(pawl.run("ls", "--json")[1]) == []


def test_the_ticket_may_come_from_standard_input(pawl: Pawl) -> None:
    ticket = pawl.run("acquire", "-t", "job")[1]
    command = pawl.start("release", "-", stdin=subprocess.PIPE)
    command.process.communicate(ticket, timeout=15)
    assert command.process.returncode == 0
    assert pawl.run("acquire", "-n", "job")[0] == 0


def test_a_ticket_of_a_program(pawl: Pawl) -> None:
    with library.connect(pawl.server.url) as client:
        ticket = client.lock("job").acquire().detach()
        assert pawl.run("release", ticket)[0] == 0
        assert not client.lock("job").locked()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_and_leaves_nothing(pawl: Pawl, number: signal.Signals) -> None:
    pawl.hold("job")
    waiter = pawl.start("acquire", "job")
    eventually(lambda: pawl.waiting("job") == 1)
    waiter.send(number)
    # Ctrl-C ends it by the signal, so that a script around it ends as well.
    code = -number if number == signal.SIGINT else 128 + number
    assert waiter.end() == (code, "", "")
    assert pawl.waiting("job") == 0


def test_one_whose_ticket_nobody_got_is_free_again(pawl: Pawl) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        done = subprocess.run(
            [*PAWL, "acquire", "job"],
            env=environment(PAWL_URL=pawl.server.url),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 74
    assert pawl.run("acquire", "-n", "job")[0] == 0


def test_the_wait_is_over(pawl: Pawl) -> None:
    holder = pawl.hold("job")
    code, out, err = pawl.run("acquire", "-w", "0.5", "job")
    assert (code, out) == (75, "")
    assert f":{holder.pid}/" in err
    assert "[LOCK_TIMEOUT]" in err
    assert err.count("\n") == 1


def test_one_is_renewed_by_its_ticket(pawl: Pawl) -> None:
    done = script(
        pawl,
        """
        vars=$(pawl acquire --ttl 20 job) || exit
        eval "$vars"
        for i in 1 2; do pawl renew || exit; done
        pawl acquire -n job >/dev/null 2>&1; echo "busy $?"
        pawl release; echo "released $?"
        pawl renew 2>/dev/null; echo "lost $?"
        """,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["busy 75", "released 0", "lost 76"]


def test_the_ticket_that_was_renewed_stays_listed(pawl: Pawl) -> None:
    made = json.loads(pawl.run("acquire", "--json", "--ttl", "20", "job")[1])
    (before,) = json.loads(pawl.run("ls", "--json")[1])
    code, out, err = pawl.run("renew", "--json", "--ttl", "60", made["ticket"])
    renewed = json.loads(out)
    assert (code, renewed["name"], renewed["fence"], err) == (0, "job", made["fence"], "")
    assert 30 < renewed["remaining"] <= 60
    (after,) = json.loads(pawl.run("ls", "--json")[1])
    assert {key: after[key] for key in ("name", "owner", "since", "fence")} == {
        key: before[key] for key in ("name", "owner", "since", "fence")
    }
    assert pawl.run("renew", "--ttl", "1", made["ticket"])[0] == 0
    # One record, which lives as long as the lock; a shorter TTL shortens neither.
    records = pawl.server.command("KEYS", "{pawl}:1:session:*")
    assert isinstance(records, list)
    assert len(records) == 1
    for key in (b"pawl:job", bytes(records[0])):  # type: ignore[arg-type]
        left = pawl.server.command("PTTL", key)
        assert isinstance(left, int)
        assert left > 30_000


def test_what_is_lost_is_not_renewed(pawl: Pawl) -> None:
    ticket = pawl.run("acquire", "-t", "--ttl", "1", "job")[1].strip()
    time.sleep(1.1)
    code, out, err = pawl.run("renew", ticket)
    assert (code, out) == (76, "")
    assert "[EXTEND_FAILED]" in err
    assert err.count("\n") == 1
    assert pawl.run("acquire", "-n", "job")[0] == 0
    assert pawl.run("renew", ticket)[0] == 76
    assert pawl.run("renew", "--namespace", "other", ticket)[0] == 64
