"""Every wrong protocol is found by the simulator, by the seed that is known to find it or by another one."""

from __future__ import annotations

from importlib.resources import files

import pytest

from pawlock.core.scripts import load
from tests.project.test_project import ROOT
from tests.simulator.mutants.catalog import ELSEWHERE, HOLES, PUBLISHED
from tests.simulator.mutants.hunt import LONG, MOST, MUTANTS, hunt, known
from tests.simulator.simulation import quiet


@pytest.mark.timeout(400)
def test_each_wrong_protocol_is_found() -> None:
    """All but those that take seconds, which are in tests/nightly/simulation."""
    with quiet():
        missed = [name for name in MUTANTS if name not in LONG and not hunt(name, known().get(name))[1]]
    assert not missed, f"nothing was wrong in {MOST} seeds"


def test_every_wrong_line_is_a_line_of_a_script() -> None:
    packages = {
        "pawlock.primitives.key",
        "pawlock.redlock",
        *(
            f"pawlock.primitives.{name}"
            for name in ("mutex", "permits", "latch", "barrier", "election", "once")
        ),
    }
    sources = [
        load(package, item.name.removesuffix(".lua")).source
        for package in sorted(packages)
        for item in files(package).iterdir()
        if item.name.endswith(".lua") and not item.name.startswith("_")
    ]
    for name, mutant in MUTANTS.items():
        change = mutant.edit
        assert change is None or any(change("", source) != source for source in sources), name


def test_every_known_mistake_is_among_them() -> None:
    assert len(PUBLISHED) == 36
    assert {name[:2] for name in HOLES} == {*(f"S{n}" for n in range(1, 10)), *(f"O{n}" for n in range(1, 6))}
    for name, mutant in {**PUBLISHED, **HOLES}.items():
        assert mutant in MUTANTS or name in ELSEWHERE, name
    for test in ELSEWHERE.values():
        path, _, function = test.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(), test
