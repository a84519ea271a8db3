"""What `pawlock run` and `pawlock once` say while they wait: for what, who has it, and since when."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, Pawlock
from tests.cli.screen import Screen, open_screen

SINCE = r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+"


def started(client: library.Client) -> library.Started:
    state = client.once("job").begin()
    assert isinstance(state, library.Started)
    return state


TAKES: dict[str, tuple[Callable[[library.Client], Any], tuple[str, ...]]] = {
    "lock": (lambda client: client.lock("job").acquire(), ("run",)),
    "election": (lambda client: client.election("job", identity="web-3").campaign(), ("run", "--elect")),
    "once": (lambda client: started(client).lease, ("once",)),
}


@pytest.mark.parametrize("kind", TAKES)
def test_v_says_what_is_waited_for(pawlock: Pawlock, kind: str) -> None:
    take, verb = TAKES[kind]
    with take(pawlock.client):
        (found,) = pawlock.client.locks()
        code, _, said = pawlock.run(*verb, "-v", "-w", "1.5s", "job", "--", "true")
        assert code == 75
        assert re.search(rf"pawlock: waiting for 'job', held by {re.escape(found.holder)} {SINCE}\n", said), (
            said
        )
        assert said.count("waiting for") == 1, "once, and again when that changes"
        code, _, said = pawlock.run(*verb, "-w", "1.5s", "job", "--", "true")
        assert "waiting for" not in said, "nobody asked, and no terminal"


def test_a_program_gets_it_as_an_event(pawlock: Pawlock) -> None:
    with pawlock.client.lock("job"):
        _, _, said = pawlock.run("run", "--json", "-w", "1.5s", "job", "--", "true")
        (found,) = pawlock.client.locks()
    (event,) = [one for one in map(json.loads, said.splitlines()) if one.get("event") == "waiting"]
    assert (event["name"], event["holder"], event["since"]) == ("job", found.holder, found.since)


def test_a_terminal_shows_it_by_itself(pawlock: Pawlock, screens: list[Screen]) -> None:
    with pawlock.client.lock("job"):
        screen = open_screen(screens, pawlock, *PAWLOCK, "run", "-w", "2s", "job", "--", "true")
        screen.until(r"waiting for 'job', held by \S+ since \d\d:\d\d:\d\d … \(\d+ s\)")
        assert screen.end() == 75
