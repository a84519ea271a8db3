"""Copy what the reference clients send out of docs/wire/scripts.json: ``python -m interop.client_scripts``.

Each is to be copied with its scripts beside it; and Go embeds no file outside of a package's folder.
"""

from __future__ import annotations

import json

from interop.kinds import ROOT

PATHS = [ROOT / "interop" / "clients" / folder / "scripts.json" for folder in ("go", "node")]
USED = ("mutex/acquire", "mutex/renew", "mutex/leave")


def text() -> str:
    """What the files are to contain: the same as the manifest, without the scripts that it does not send."""
    manifest = json.loads((ROOT / "docs" / "wire" / "scripts.json").read_text(encoding="utf-8"))
    manifest["scripts"] = {name: manifest["scripts"][name] for name in USED}
    return json.dumps(manifest, indent=1) + "\n"


if __name__ == "__main__":
    for path in PATHS:
        path.write_text(text(), encoding="ascii")
