"""docs/wire/vectors.json is what a server answers, and shows every reply that a script has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Server
from tools import wire_vectors

WIRE = Path(__file__).resolve().parents[3] / "docs" / "wire"
UNSHOWN = ("session/", "probe/")
"""What a client may leave out: records about itself, and what pawlock asks a server once."""


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((WIRE / name).read_text(encoding="utf-8"))
    return found


def test_the_file_is_what_a_server_answers(server: Server) -> None:
    text = wire_vectors.rendered(server)
    assert json.loads(text) == read("vectors.json"), "run python tools/wire_vectors.py"
    assert text == (WIRE / "vectors.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", [name for name in read("scripts.json")["scripts"] if not name.startswith(UNSHOWN)]
)
def test_every_reply_of_a_script_is_shown(name: str) -> None:
    scripts = read("scripts.json")["scripts"]
    own, stated = name.partition("/")[0], set[str]()
    for reply in scripts[name]["replies"]:
        other = re.match(r"what (\w+)\.lua (?:of the mutex )?returns", reply)
        folder = "mutex" if "of the mutex" in reply else own
        replies = scripts[f"{folder}/{other[1]}"]["replies"] if other else [reply]
        # What else a mutex answers is shown there.
        stated |= {one[2] for one in replies if not (other and folder != own)}
    shown = {
        step["reply"][0]
        for scene in read("vectors.json")["scenes"]
        for step in scene["steps"]
        if step.get("script") == name and isinstance(step["reply"], list)
    }
    assert shown
    assert stated <= shown
