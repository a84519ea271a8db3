"""The scripts of an election are those of the mutex, and tell the observers of each change and of nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest

from pawlock.core.scripts import load
from tests.support.servers import Server
from tests.unit.scripts.fuzz import Broken, fuzz
from tests.unit.scripts.rig import _MAIL, _OUR_CLOCK, _PUBLISH, Reply, Rig

SECONDS = float(os.environ.get("PAWLOCK_FUZZ_SECONDS", "0.3"))
SCRIPTS = ("acquire", "renew", "leave")
OBSERVER = "observer@host:1/o"


class ElectionRig(Rig):
    """The rig of the mutex, with the scripts of an election in place of three of it, and one observer noted."""

    def __init__(self, path: str, edit: Callable[[str], str]) -> None:
        super().__init__(path)
        self.told = 0
        self.outbox: list[tuple[str, list[str]]] = []
        for name in SCRIPTS:
            source = edit(load("pawlock.primitives.election", name).source.decode())
            source = source.replace("local call = redis.call\n", _OUR_CLOCK).replace(_PUBLISH, _MAIL)
            self.sha[name] = self.redis.script_load(source)

    def run(self, script: str, args: tuple[Any, ...], name: str = "n", **tokens: str) -> Reply:
        if script not in SCRIPTS:
            return super().run(script, args, name, **tokens)
        parts = ["name", "fence", "queue", "tickets", *(["dead"] if script != "renew" else [])]
        keys = [self.key(part, name, **tokens) for part in (*parts, "observers")]
        self.requests += 1
        rid, before = f"r{self.requests}", self.value(name)
        pipe = self.redis.pipeline(transaction=False)
        pipe.mset({"_now_us": self.now_us, "_drift_us": self.drift_us})
        pipe.zadd(keys[-1], {f"{OBSERVER} watch": 9e15})
        pipe.evalsha(self.sha[script], len(keys), *keys, *args, rid)
        reply = pipe.execute()[-1]
        assert reply[1] == rid
        mail = super().mail()
        told = [words for channel, words in mail if channel == "watch" and words[0] == OBSERVER]
        self.outbox += [letter for letter in mail if letter[0] != "watch"]
        after = self.value(name)
        if len(told) != (before != after):
            raise Broken(f"{script} made {after} of {before} and told {told}")
        self.told += len(told)
        return (reply[0], *reply[2:])

    def mail(self) -> list[tuple[str, list[str]]]:
        """Messages to candidates; those to the observer were looked at."""
        found, self.outbox = [*self.outbox, *super().mail()], []
        return found


MUTANTS: dict[str, tuple[str, str]] = {
    "observers are not told": ("    wake(call('ZRANGE', OBSERVERS, 0, -1), 0, now_ms)\n", ""),
    "observers are told each time": ("if redis.pcall('GET', NAME) ~= leader_before then", "if true then"),
    "who led before is read too late": (
        "local leader_before = call('GET', NAME)\n",
        "local leader_before = false\n",
    ),
    "the script of the mutex is another one": (
        "local holding = value == token",
        "local holding = value and true",
    ),
}


@pytest.fixture
def mutate(valkey: Server) -> Iterator[Callable[[str, str], ElectionRig]]:
    rigs: list[ElectionRig] = []

    def make(old: str, new: str) -> ElectionRig:
        hits = []

        def edit(source: str) -> str:
            hits.append(source.count(old))
            return source.replace(old, new)

        rigs.append(ElectionRig(valkey.socket_path, edit))
        assert sum(hits), f"no script has {old!r} any more"
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def test_nothing_breaks(mutate: Callable[[str, str], ElectionRig]) -> None:
    rig = mutate("local call", "local call")
    wanted = {"held": 50, "by message": 10}
    worlds, _ = fuzz(rig, range(1_000_000), seconds=SECONDS, wanted=wanted)
    assert worlds
    assert rig.told > 50


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_script_is_noticed(mutate: Callable[[str, str], ElectionRig], mutant: str) -> None:
    rig = mutate(*MUTANTS[mutant])
    with pytest.raises(Broken) as caught:
        fuzz(rig, range(200), seconds=inf)
    print(mutant, "->", str(caught.value)[:150])
