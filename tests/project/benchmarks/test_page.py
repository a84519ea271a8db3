"""The page "How fast, and why" and its pictures are of the run that is stored."""

from __future__ import annotations

import copy

from benchmarks import page, plots, store
from benchmarks.scenarios import SCENARIOS


def test_the_page_and_its_pictures_are_of_the_stored_run() -> None:
    document = store.load()
    assert page.PAGE.read_text() == page.render(document), "run: python -m benchmarks.page --plots"
    results = store.results_of(document)
    for name in document["scenarios"]:
        mark = plots.digest(SCENARIOS[name], results)
        for kind in ("svg", "png"):
            picture = (plots.FOLDER / f"{name}.{kind}").read_bytes()
            assert mark.encode() in picture, (
                f"{name}.{kind} shows another run: python -m benchmarks.page --plots"
            )


def test_another_figure_gives_another_page() -> None:
    document = store.load()
    other = copy.deepcopy(document)
    for sample in other["scenarios"]["P1"]["samples"]["pawlock"]:
        sample["cpu_us_per_pair"] *= 1.5
    assert page.render(other) != page.render(document)
    for sample in other["scenarios"]["P1"]["samples"]["pawlock"]:
        sample["pairs_per_s"] *= 1.5
    before, after = store.results_of(document), store.results_of(other)
    assert plots.digest(SCENARIOS["P1"], before) != plots.digest(SCENARIOS["P1"], after)
