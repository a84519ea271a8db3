"""`pawlock run --elect`: one leads, a lost lead ends the command, and then it stands again."""

import signal
import time

import pytest

import pawlock as library
from tests.cli.conftest import Command, Pawlock, eventually, lives

pytestmark = pytest.mark.slow

LEAD = ("sh", "-c", "echo $$ $PAWLOCK_FENCE; exec sleep 60")


def leads(command: Command) -> tuple[int, int]:
    """Wait until it leads: the child's process id, and the fence."""
    child, fence = command.line().split()
    return int(child), int(fence)


def standing(pawlock: Pawlock, name: str) -> int:
    reply = pawlock.server.command("ZCARD", f"{{pawlock:%election:{name}}}:1:queue")
    assert isinstance(reply, int)
    return reply


def lose(pawlock: Pawlock, name: str) -> None:
    """Take the lead away as an operator or a failover would."""
    assert pawlock.server.command("DEL", f"pawlock:%election:{name}") == 1


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("exit 76", 76), ("kill -9 $$", 137)]
)
def test_the_child_decides(pawlock: Pawlock, script: str, code: int) -> None:
    assert pawlock.run("run", "--elect", "boss", "--", "sh", "-c", script) == (code, "", "")
    assert pawlock.left_over() == []


def test_one_leads_and_the_next_follows(pawlock: Pawlock) -> None:
    first = pawlock.start("run", "--elect", "boss", "--", *LEAD)
    _, before = leads(first)
    second = pawlock.start("run", "--elect", "boss", "--", *LEAD)
    eventually(lambda: standing(pawlock, "boss") == 1)
    with library.connect(pawlock.server.url) as client:
        leader = client.election("boss").leader()
        assert leader is not None
        assert (f":{first.pid}/" in leader.identity, leader.fence) == (True, before)
        first.send(signal.SIGTERM)
        assert first.end()[0] == 143
        _, after = leads(second)
        leader = client.election("boss").leader()
        assert leader is not None
        assert (f":{second.pid}/" in leader.identity, leader.fence) == (True, after)
    assert after > before


def test_a_lost_lead_ends_the_command_and_it_stands_again(pawlock: Pawlock) -> None:
    command = pawlock.start("run", "--elect", "--ttl", "1", "boss", "--", *LEAD)
    child, before = leads(command)
    pid = command.pid
    for _ in range(2):
        lose(pawlock, "boss")
        again, after = leads(command)
        assert not lives(child)
        assert after > before
        child, before = again, after
    assert command.process.poll() is None
    command.send(signal.SIGTERM)
    code, _, err = command.end()
    assert code == 143
    assert err.count("the lease of 'boss' was lost (") == 2
    assert command.pid == pid
    eventually(lambda: not lives(child))
    assert pawlock.left_over() == []


def test_signals_reach_a_later_child_too(pawlock: Pawlock) -> None:
    trap = "trap 'echo usr1' USR1; trap 'echo term; exit 9' TERM; echo $$ $PAWLOCK_FENCE; while :; do sleep 0.05; done"
    command = pawlock.start(
        "run", "--elect", "--ttl", "1", "--kill-after", "0.2", "boss", "--", "sh", "-c", trap
    )
    leads(command)
    lose(pawlock, "boss")
    assert command.line() == "term"
    leads(command)
    command.send(signal.SIGUSR1)
    assert command.line() == "usr1"
    command.send(signal.SIGTERM)
    code, out, _ = command.end()
    assert (code, out) == (9, "term\n")


def test_a_signal_ends_the_wait(pawlock: Pawlock) -> None:
    first = pawlock.start("run", "--elect", "boss", "--", *LEAD)
    leads(first)
    second = pawlock.start("run", "--elect", "boss", "--", "true")
    eventually(lambda: standing(pawlock, "boss") == 1)
    second.send(signal.SIGINT)
    assert second.end() == (-signal.SIGINT, "", "")
    assert standing(pawlock, "boss") == 0


def test_the_wait_is_over(pawlock: Pawlock) -> None:
    first = pawlock.start("run", "--elect", "boss", "--", *LEAD)
    leads(first)
    for words in (["-w", "0.3"], ["-n"]):
        code, out, err = pawlock.run("run", "--elect", *words, "boss", "--", "true")
        assert (code, out) == (75, "")
        assert "'boss' is held by " in err
        assert f":{first.pid}/" in err
        assert err.endswith(" [LOCK_TIMEOUT]\n")


@pytest.mark.slow
def test_the_server_is_away_for_a_while(pawlock_alone: Pawlock) -> None:
    pawlock = pawlock_alone
    command = pawlock.start("run", "--elect", "--ttl", "1", "--kill-after", "0.2", "boss", "--", *LEAD)
    child, before = leads(command)
    pawlock.server.kill()
    eventually(lambda: not lives(child))
    time.sleep(12)  # longer than a campaign bears it, so that one ends in between
    assert command.process.poll() is None
    pawlock.server.restart(keep_data=False)
    _, after = leads(command)
    assert after > before
    command.send(signal.SIGTERM)
    assert command.end()[0] == 143


@pytest.mark.slow
def test_a_server_that_never_was_is_an_error(pawlock: Pawlock) -> None:
    code, out, err = pawlock.run(
        "run", "--elect", "--url", "redis://127.0.0.1:1/0", "boss", "--", "echo", "in"
    )
    assert (code, out) == (69, "")
    assert err.count("\n") == 1


def test_names_that_look_like_words_of_the_command(pawlock: Pawlock) -> None:
    command = pawlock.start("run", "--elect", "--ttl", "1", "elect", "--", *LEAD)
    leads(command)
    lose(pawlock, "elect")
    leads(command)
    command.send(signal.SIGTERM)
    assert command.end()[0] == 143
