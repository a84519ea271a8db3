"""Write docs/wire/scripts.json: the scripts as they are sent, for clients in other languages.

Each is taken from its file under src/pawlock and from its header. `python tools/wire_scripts.py` writes it
anew; a test holds it to what this would write.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from pawlock.core.names import WIRE_VERSION  # noqa: E402  # of this checkout
from pawlock.core.scripts import header, load  # noqa: E402

__all__ = ["rendered"]

PACKAGE = ROOT / "src" / "pawlock"
FILE = ROOT / "docs" / "wire" / "scripts.json"
SEVERAL = {"mutex/renew_all"}
"""What takes several names in one run: its keys once for each of them, and its arguments but ``rid``."""

# Of keys that are named alike wherever they are taken.
_COMMON = {
    "key": "",
    "name": "",
    "fence": "fence",
    "queue": f"{WIRE_VERSION}:queue",
    "tickets": f"{WIRE_VERSION}:tickets",
    "dead": f"{WIRE_VERSION}:dead:<token>",
    "dead_old": f"{WIRE_VERSION}:dead:<old_token>",
    "dead_new": f"{WIRE_VERSION}:dead:<token>",
    "holds": f"{WIRE_VERSION}:holds",
    "observers": f"{WIRE_VERSION}:observers",
    "done": f"{WIRE_VERSION}:done",
    "waits": f"{WIRE_VERSION}:waits:<process>",
    "audit": f"{WIRE_VERSION}:audit",
    "lines": f"{WIRE_VERSION}:audit",
    "node": "",
}
_STEMS = {"permits": "permits", "latch": "latch", "barrier": "barrier"}
_RULES = {
    "key": "the name's key K is <namespace>:<escaped name>; names.json has examples",
    "suffix": "'' is K itself; any other is {K}:<suffix>, or K:pawlock:<suffix> if K has a hash tag",
    "rwlock": "the permits scripts serve read-write locks too, with 1:rwlock instead of 1:permits",
    "namespace": "of the namespace scripts, K is the namespace ('pawlock:' without one)",
    "election": "K is <namespace>:%election:<escaped name>; of the once scripts, <namespace>:%once:<escaped name>",
    "rid": "the last argument of every script; every reply repeats it as its second element",
    "several": "a script with this takes its keys once for each name, and its arguments but rid once for each",
}

Entry = dict[str, Any]


def listed(field: str) -> list[tuple[str, str]]:
    """Read `token, mode (0 try, 1 wait), rid` as words, each with what stands in its parentheses."""
    found = re.findall(r"(\w+)(?: \(((?:[^()]|\([^()]*\))*)\))?(?:,|$)", field)
    return [(str(word), str(note)) for word, note in found]


def suffix_of(folder: str, word: str) -> str:
    """What follows the key of the name, as the rules say, for a key that a header names."""
    stem = "permits" if folder == "redlock" and word in ("permits", "intent") else _STEMS.get(folder)
    if stem is None:
        return _COMMON[word]
    base = f"{WIRE_VERSION}:{stem}"
    if word == stem:
        return base
    return f"{base}:dead:<token>" if word == "dead" else f"{base}:{word}"


def keys_of(path: Path, field: str) -> list[Entry]:
    """The keys of a script, each with its suffix."""
    folder, found = path.parent.name, listed(field)
    return [
        {"name": word, "suffix": suffix_of(folder, word)} | ({"note": note} if note else {})
        for word, note in found
    ]


def entry(path: Path) -> Entry:
    """One script: what its header says, and the text that is sent."""
    fields = header(path.read_text("ascii"), path.stem)
    script = load(".".join(["pawlock", *path.parent.relative_to(PACKAGE).parts]), path.stem)
    keys = keys_of(path, fields["keys"])
    args = [{"name": word} | ({"note": note} if note else {}) for word, note in listed(fields["args"])]
    if (len(keys), len(args)) != (script.numkeys, script.numargs):
        raise ValueError(f"{path}: the header is not understood: {keys}, {args}")
    return {
        "sha1": script.sha,
        "does": does(path),
        "keys": keys,
        "arguments": args,
        **({"several": True} if name_of(path) in SEVERAL else {}),
        "replies": fields["returns"].split(" | "),
        "invariant": fields["invariant"],
        "source": script.source.decode("ascii"),
    }


def name_of(path: Path) -> str:
    """`mutex/acquire`, say."""
    return f"{path.parent.name}/{path.stem}"


def does(path: Path) -> str:
    """The first lines of a header: what the script does for its caller."""
    words: list[str] = []
    for line in path.read_text("ascii").splitlines():
        if not line.startswith("-- ") or re.match(r"-- (keys|args|returns|invariant):", line):
            break
        words.append(line[3:].strip())
    return " ".join(words)


def rendered() -> str:
    """The text of the file."""
    paths = [*PACKAGE.glob("primitives/*/[a-z]*.lua"), *PACKAGE.glob("redlock/[a-z]*.lua")]
    # Those of keys of other programs tell these of a release; all else is the mutex.
    paths = sorted((path for path in paths if path.parent.name != "key"), key=name_of)
    scripts = {name_of(path): entry(path) for path in paths}
    return json.dumps({"wire": WIRE_VERSION, "rules": _RULES, "scripts": scripts}, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(rendered(), encoding="utf-8")
