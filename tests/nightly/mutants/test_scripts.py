"""A wrong line in a script is noticed."""

from __future__ import annotations

import pytest

from tests.nightly.mutants.scripts import drawn, every, noticed

pytestmark = pytest.mark.slow

SAMPLE, SEED = 6, 1


def test_there_are_mutants_of_every_script() -> None:
    found = list(every())
    assert len(found) > 1000
    assert {"primitives/mutex/acquire.lua", "primitives/_fence.lua", "redlock/grant.lua"} <= {
        one.file for one in found
    }


@pytest.mark.timeout(3600)
def test_wrong_scripts_are_noticed() -> None:
    """Not each can be: one in ten or so is the same to every caller."""
    missed = [one for one in drawn(SAMPLE, SEED) if not noticed(one)]
    assert len(missed) <= SAMPLE // 3, [f"{one.file}:{one.line} {one.what}" for one in missed]
