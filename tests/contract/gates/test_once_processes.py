"""``once`` in many processes, which are killed at any moment."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from tests.contract.gates.rig import Made, make, number, program, says
from tests.faults.rig import Api, in_thread, remains, until
from tests.support.resp import texts
from tests.support.servers import Server

DONE = "{pawlock:%once:n}:1:done"
KEY = "pawlock:%once:n"
QUEUE = "{pawlock:%once:n}:1:queue"


def begun(once: Made, **options: object) -> Any:
    return once.do("begin", **options)


def finish(api: Api, state: Any, *args: object, **options: object) -> None:
    api.run(lambda: state.finish(*args, **options))


def abandon(api: Api, state: Any) -> None:
    api.run(state.abandon)


@pytest.fixture
def once(clean: Server, api: Api) -> Made:
    return make(api.connect(clean.url), "once", "n")


@pytest.fixture
def other(clean: Server, api: Api) -> Made:
    return make(api.connect(clean.url), "once", "n")


STARTER = """
import pawlock, sys, time
client = pawlock.connect(sys.argv[1], ttl=1)
state = client.once("n").begin()
print("ready", flush=True)
print(state.fence, flush=True)
time.sleep(3600)
"""

WORKER = """
import pawlock, random, sys, time
url, seed, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
client = pawlock.connect(url, ttl=1, namespace="many")
names = list(range(keys))
rng.shuffle(names)
for name in names:
    state = client.once(f"k{name}", wait=True).begin()
    if isinstance(state, pawlock.Started):
        value = f"{name} by {seed} at {state.fence}"
        if rng.random() < 0.3:
            time.sleep(rng.random() / 100)
        state.finish(value)
        print("finished", name, value, flush=True)
    else:
        print("got", name, state.value, flush=True)
print("end", flush=True)
"""


def test_a_killed_starter_frees_it(clean: Server, once: Made) -> None:
    with program(STARTER, clean.url) as process:
        fence = int(says(process))
        waiting = once.start("begin", wait=True, timeout=60)
        until(lambda: number(clean, "ZCARD", QUEUE) == 1)
        process.kill()
        state = waiting.result(30)
        assert state.fence > fence
        finish(once.api, state, "by the next")


@pytest.mark.parametrize(
    ("processes", "keys", "kills"),
    [
        (2, 20, 1),
        pytest.param(4, 40, 6, marks=pytest.mark.slow),
        pytest.param(50, 1000, 100, marks=pytest.mark.slow),
    ],
)
def test_every_key_is_finished_once_and_everybody_gets_that_value(
    clean: Server, processes: int, keys: int, kills: int
) -> None:
    """Processes are killed at random, and new ones take their places."""
    rng, started = random.Random(processes), 0
    said: list[str] = []
    alive: dict[subprocess.Popen[str], Future[tuple[str, str]]] = {}

    def begin() -> None:
        nonlocal started
        started += 1
        command = [sys.executable, "-c", WORKER, clean.url, str(started), str(keys)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        alive[process] = in_thread(process.communicate)

    def enough(kill: int) -> bool:
        return number_of_results(clean) * (kills + 2) >= keys * (kill + 1)

    try:
        for _ in range(processes):
            begin()
        # By what was done, not by the clock: a process is killed each time that some more keys are finished.
        for kill in range(kills):
            until(partial(enough, kill), 300)
            victim = rng.choice(list(alive))
            victim.kill()
            said.append(alive.pop(victim).result(60)[0])
            begin()
        for process, output in list(alive.items()):
            said.append(output.result(300)[0])
            assert process.returncode == 0
            assert said[-1].endswith("end\n")
            del alive[process]
    finally:
        for process, output in alive.items():
            process.kill()
            output.result(60)
    assert results("".join(said)) == keys
    assert number_of_results(clean) == keys
    assert not [name for name in remains(clean) if not name.endswith(":1:done")]


def number_of_results(server: Server) -> int:
    return sum(name.endswith(":1:done") for name in texts(server.command("KEYS", "*many:%once:*")))


def results(said: str) -> int:
    """How many keys there are results of, each of which is the same to everybody."""
    finished: dict[str, str] = {}
    got: dict[str, set[str]] = {}
    for line in said.splitlines():
        what, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        if value.count(" ") != 4:
            continue  # its process was killed while it said so
        if what == "finished":
            # Said after the reply: of one that was killed in between, the others know the value.
            assert finished.setdefault(name, value) == value
        elif what == "got":
            got.setdefault(name, set()).add(value)
    for name, values in got.items():
        assert len(values) == 1, (name, values)
        assert finished.get(name, *values) in values
    return len(got | finished)
