"""The scripts that pawlock sends, as docs/wire/scripts.json publishes them: a test of the wire holds it to them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Script", "package_of", "published"]

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "wire" / "scripts.json"


class Script(NamedTuple):
    """A script.

    Attributes:
        sha: Its hash.
        source: Its text.
    """

    sha: str
    source: bytes


def package_of(folder: str) -> str:
    """The package that holds the scripts of a folder."""
    return "pawlock.redlock" if folder == "redlock" else f"pawlock.primitives.{folder}"


@cache
def _all() -> dict[str, Script]:
    scripts = json.loads(_PAGE.read_text(encoding="utf-8"))["scripts"]
    return {name: Script(script["sha1"], script["source"].encode()) for name, script in scripts.items()}


def published(name: str) -> Script:
    """A script by its folder and name, such as ``mutex/acquire``."""
    return _all()[name]
