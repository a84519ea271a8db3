"""The scripts as docs/wire/scripts.json publishes them: which one a request runs, seen from outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.proxy import Request
from tests.support.servers import Server

__all__ = ["runs", "script", "teach"]

_FILE = Path(__file__).parents[2] / "docs" / "wire" / "scripts.json"


@cache
def _scripts() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))["scripts"]
    return found


def script(name: str) -> tuple[str, bytes]:
    """The hash of a script that is named ``folder/name``, and its text."""
    found = _scripts()[name]
    return found["sha1"], found["source"].encode()


def teach(server: Server, *folders: str) -> None:
    """Load all scripts of some folders, so that the n-th request of a kind is the n-th that a test thinks of."""
    for name in _scripts():
        if name.partition("/")[0] in folders:
            server.command("SCRIPT", "LOAD", script(name)[1])


def runs(*names: str) -> Callable[[Request], bool]:
    """Requests that run one of these scripts, by hash or by text."""
    words = {word for name in names for sha, text in [script(name)] for word in (sha.encode(), text)}
    return lambda request: request.command in {"EVALSHA", "EVAL"} and request.args[1] in words
