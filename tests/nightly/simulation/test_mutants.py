"""Every wrong protocol is found by the simulator, and soon."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pawlock.core.protocol.scripts import load
from tests.nightly.simulation.catalog import ELSEWHERE, HOLES, PUBLISHED
from tests.nightly.simulation.hunt import MOST, MUTANTS, hunt, known
from tests.project.test_project import ROOT


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> Iterator[None]:
    """What is there before is no garbage: each run ends with a collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_protocol_is_found(name: str) -> None:
    seed, found = hunt(name, known().get(name))
    assert found, f"nothing was wrong in {MOST} seeds"
    print(name, "-> seed", seed, found)


def test_every_wrong_line_is_a_line_of_a_script() -> None:
    sources = [load(package, script).source for package, script in _scripts()]
    for name, mutant in MUTANTS.items():
        change = mutant.edit
        assert change is None or any(change("", source) != source for source in sources), name


def _scripts() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "src/pawlock/primitives").glob("*/[a-z]*.lua"):
        yield f"pawlock.primitives.{path.parent.name}", path.stem


def test_every_known_mistake_is_among_them() -> None:
    assert len(PUBLISHED) == 36 + 1
    assert {name[:2] for name in HOLES} == {*(f"S{n}" for n in range(1, 10)), *(f"O{n}" for n in range(1, 6))}
    for name, mutant in {**PUBLISHED, **HOLES}.items():
        assert mutant in MUTANTS or name in ELSEWHERE, name
    for test in ELSEWHERE.values():
        path, _, function = test.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(), test


def test_the_table_names_each_with_its_seed() -> None:
    """``tools/mutant_table.py`` writes it."""
    page = (ROOT / "docs/reference/wrong-protocols.md").read_text()
    assert {*known()} == {*MUTANTS}
    for name, seed in known().items():
        assert f"| {name} | {seed} |" in page, name
