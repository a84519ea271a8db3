"""The diagrams of the documentation are what tools/diagrams.py draws, and each is on a page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]


def drawn() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "tools/diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, str] = module.drawn()
    return found


def test_the_files_are_what_the_tool_draws() -> None:
    files = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "docs/images/diagrams").glob("*.svg")}
    assert files == drawn(), "run: python tools/diagrams.py"


def test_each_is_well_formed_and_shown_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    for name, text in drawn().items():
        ET.fromstring(text)
        assert f"images/diagrams/{name})" in pages, name


def test_the_recorded_demo_is_one_that_went_well() -> None:
    picture = (ROOT / "docs/images/demo.svg").read_text(encoding="utf-8")
    ET.fromstring(picture)
    assert "docs/images/demo.svg" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "exact, in" in picture, "run: python tools/record_demo.py"
