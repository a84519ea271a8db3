"""The Spin models hold, each broken variant fails in the property that is meant."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_models", ROOT / "tools" / "check_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_models"] = module
    spec.loader.exec_module(module)
    return module


models = load()
CASES = models.cases()


def named(case: object) -> str:
    kind = "live" if getattr(case, "live", False) else "safety"
    return f"{getattr(case, 'model', '')}-{getattr(case, 'variant', '') or kind}"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=named)
def test_spin_says_what_the_header_says(case: object) -> None:
    if reason := models.missing():
        pytest.skip(reason)
    result = models.check(case)
    assert result.verdict == getattr(case, "expected", None)


def test_each_model_has_broken_variants_and_names_what_it_models() -> None:
    for path in sorted((ROOT / "formal").glob("*.pml")):
        of_it = [case for case in CASES if case.model == path.stem]
        assert sum(case.expected not in {"holds", "reached"} for case in of_it) >= 3
        assert any(case.expected == "reached" for case in of_it)
        text = path.read_text(encoding="utf-8")
        for case in of_it:
            assert not case.variant or f"def {case.variant}\n" in text, f"{case.variant} changes nothing"
        words = text[: text.index("*/")].replace(",", " ").replace(";", " ").split()
        sources = [word.rstrip(".:") for word in words if word.startswith("src/")]
        assert sources
        assert all((ROOT / source).exists() for source in sources)


def test_a_search_that_was_cut_short_does_not_hold() -> None:
    assert models.judge("error: max search depth too small\n errors: 0").startswith("unfinished")
    assert models.judge("State-vector 8 byte, errors: 0").startswith("holds")
