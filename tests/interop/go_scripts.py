"""Write the scripts of the Go client anew: ``python -m tests.interop.go_scripts``."""

from __future__ import annotations

import json

from pawl.core.protocol.names import WIRE_VERSION
from pawl.core.protocol.scripts import load
from tests.interop.kinds import ROOT

PATH = ROOT / "examples" / "wire" / "go" / "scripts.json"
USED = ("acquire", "renew", "leave")


def text() -> str:
    """What the file is to contain."""
    scripts = {name: load("pawl.primitives.mutex", name) for name in USED}
    listed = {
        f"mutex/{name}": {"sha1": one.sha, "source": one.source.decode("ascii")}
        for name, one in scripts.items()
    }
    return json.dumps({"wire": WIRE_VERSION, "scripts": listed}, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="ascii")
