"""The check of the order of waiters: the same verdicts as a look at every pair, at the cost of a sort."""

from __future__ import annotations

import random
from math import log2
from typing import Any

import pytest

from tests.support.history import History, Mode, Violation, fifo


def crowd(grants: int, seed: int, *, swaps: float = 0.0, names: int = 1, number: Any = float) -> History:
    """Grants in the order of arrival, but for some that overtook; some give up, some have no fence."""
    rng = random.Random(seed)
    rows: list[tuple[float, str, str, dict[str, Any]]] = []
    for n in range(grants):
        place, came, waits = (
            n + rng.randrange(1, 9) * (rng.random() < swaps),
            float(n),
            5.0 + 3 * rng.random(),
        )
        who = f"p{n % 7}.{n}"
        rows += [(came, "invoke", who, {}), (came + rng.random(), "queued", who, {})]
        if rng.random() < 0.05:
            rows.append((came + waits, "fail", who, {}))
        else:
            fence = {} if rng.random() < 0.1 else {"fence": number(1000 + place)}
            rows.append((place + 6.0 + rng.random() / 9, "ok", who, fence))
    history, known = History(), dict[str, str]()
    for at, what, who, more in sorted(rows, key=lambda row: (row[0], row[1] != "invoke")):
        if what == "invoke":
            name = f"n{int(who.partition('.')[2]) % names}"
            known[who] = history.invoke(number(at), who, "acquire", name)
        else:
            getattr(history, what)(number(at), known[who], **more)
    return history


def pairs(history: History, overtakes: int, grace: float) -> dict[str, int]:
    """By the definition: who was overtaken, and how often."""
    found: dict[str, int] = {}
    for name in history.names:
        operations = list(history.of(name, "acquire"))
        granted = [op for op in operations if op.granted]
        for waiter in operations:
            if (
                waiter.queued is None
                or waiter.lapsed
                or not (waiter.granted or waiter.mode is Mode.EXCLUSIVE)
            ):
                continue
            until = waiter.end if waiter.granted else min(waiter.end - grace, waiter.died)
            passed = 0
            for op in granted:
                fenced = waiter.granted and None not in (op.fence, waiter.fence)
                before = (op.fence or 0) < (waiter.fence or 0) if fenced else op.end < until
                passed += op.start > waiter.queued and before
            if passed > overtakes:
                found[waiter.id] = passed
    return found


def counted(violations: list[Violation]) -> dict[str, int]:
    return {found.operations[0].id: int(found.text.partition(" ")[0]) for found in violations}


@pytest.mark.parametrize("seed", range(12))
def test_the_verdicts_are_those_of_a_look_at_every_pair(seed: int) -> None:
    history = crowd(300, seed, swaps=seed / 20, names=1 + seed % 3)
    for overtakes in (0, 2):
        assert counted(fifo(history, overtakes)) == pairs(history, overtakes, 0.05)
    assert seed < 3 or fifo(history)


class Compared(float):
    """A number that counts how often it is compared."""

    times = 0

    def __lt__(self, other: float) -> bool:
        Compared.times += 1
        return float.__lt__(self, other)

    def __gt__(self, other: float) -> bool:
        Compared.times += 1
        return float.__gt__(self, other)

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return float.__eq__(self, other)

    def __neg__(self) -> Compared:
        return Compared(-float(self))

    __hash__ = float.__hash__


def test_many_grants_cost_a_sort() -> None:
    grants = 5_000
    history = crowd(grants, 1, number=Compared)
    Compared.times = 0
    found = fifo(history, overtakes=20)
    assert not found
    assert Compared.times < 12 * grants * log2(grants), "comparisons grow with the square of the grants"


def test_many_names_are_each_looked_at_once() -> None:
    history = crowd(2_000, 1, names=1_000)
    looked = 0
    for name in history.names:
        looked += sum(1 for _ in history.of(name))
    assert looked == 2_000
    assert not fifo(history, overtakes=20)
