"""Copy what the Go client sends out of docs/wire/scripts.json: ``python -m tests.interop.go_scripts``.

It embeds its scripts, and Go embeds no file outside of a package's folder.
"""

from __future__ import annotations

import json

from tests.interop.kinds import ROOT

PATH = ROOT / "examples" / "wire" / "go" / "scripts.json"
USED = ("mutex/acquire", "mutex/renew", "mutex/leave")


def text() -> str:
    """What the file is to contain: the same as the manifest, without the scripts that it does not send."""
    manifest = json.loads((ROOT / "docs" / "wire" / "scripts.json").read_text(encoding="utf-8"))
    manifest["scripts"] = {name: manifest["scripts"][name] for name in USED}
    return json.dumps(manifest, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="ascii")
