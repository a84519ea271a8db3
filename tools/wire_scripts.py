"""Write docs/wire/scripts.json and docs/wire/key-scripts.json: the scripts as they are sent, for other languages.

Each is taken from its file under src/pawlock/primitives and from its header. `python tools/wire_scripts.py` writes both
anew; a test holds them to what this would write.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from pawlock.core.protocol.names import WIRE_VERSION  # noqa: E402  # of this checkout
from pawlock.core.protocol.scripts import header, load  # noqa: E402

__all__ = ["FILES", "rendered"]

PRIMITIVES = ROOT / "src" / "pawlock" / "primitives"
FOLDER = ROOT / "docs" / "wire"
VARIANTS = ("plain", "redisson")
SEVERAL = {"mutex/multi", "mutex/renew_all", "session/read"}
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
    "history": f"{WIRE_VERSION}:history",
    "record": f"{WIRE_VERSION}:session:<id>",
    "sessions": f"{WIRE_VERSION}:sessions",
    "order": f"{WIRE_VERSION}:sessions:order",
    "audit": f"{WIRE_VERSION}:audit",
    "lines": f"{WIRE_VERSION}:audit",
    "taken": f"{WIRE_VERSION}:taken",
}
_STEMS = {"permits": "permits", "latch": "latch", "barrier": "barrier"}
_REDISSON = [
    {"name": "redisson_queue", "key": "redisson_lock_queue:{N}"},
    {"name": "redisson_token", "key": "redisson_lock_token:{N}"},
]
_SHARED = {"name": "shared", "note": "yield_after_ms yield_for_ms wake: see the wire protocol"}
_RULES = {
    "key": "the name's key K is <namespace>:<escaped name>; vectors.json has examples",
    "suffix": "'' is K itself; any other is {K}:<suffix>, or K:pawlock:<suffix> if K contains a brace",
    "rwlock": "the permits scripts serve read-write locks too, with 1:rwlock instead of 1:permits",
    "namespace": "of history, K is that of the name; of the other session scripts, the namespace ('pawlock:' without one)",
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


def entry(path: Path, variant: str = "") -> Entry:
    """One script: what its header says, and the text that is sent."""
    fields = header(path.read_text("ascii"), path.stem)
    script = load(
        ".".join(["pawlock", *path.parent.relative_to(PRIMITIVES.parent).parts]), path.stem, variant
    )
    keys = keys_of(path, fields["keys"])
    args = [{"name": word} | ({"note": note} if note else {}) for word, note in listed(fields["args"])]
    names = [arg["name"] for arg in args]
    if variant and "fence_ttl_ms" in names:
        args.insert(names.index("fence_ttl_ms"), _SHARED)
    if variant == "redisson":
        keys[-1:-1] = _REDISSON
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
    return str(path.relative_to(PRIMITIVES).with_suffix(""))


def does(path: Path) -> str:
    """The first lines of a header: what the script does for its caller."""
    words: list[str] = []
    for line in path.read_text("ascii").splitlines():
        if not line.startswith("-- ") or re.match(r"-- (keys|args|returns|invariant):", line):
            break
        words.append(line[3:].strip())
    return " ".join(words)


def manifest(scripts: Entry) -> Entry:
    """A whole file."""
    return {"wire": WIRE_VERSION, "rules": _RULES, "scripts": scripts}


def ordinary() -> Entry:
    """Every script, as it runs for a name of pawlock."""
    paths = [*sorted(PRIMITIVES.glob("*/[a-z]*.lua")), PRIMITIVES / "touch.lua"]
    return manifest({name_of(path): entry(path) for path in paths})


def of_keys() -> Entry:
    """The scripts of a key that is shared with other programs, on either wire."""
    from pawlock.primitives.key import SCRIPTS  # here, since it loads every script

    names = sorted({script.name for script in SCRIPTS["plain"].values()})
    paths = [PRIMITIVES / "mutex" / f"{name}.lua" for name in names]
    return manifest(
        {f"{name_of(path)}@{variant}": entry(path, variant) for variant in VARIANTS for path in paths}
    )


FILES = {"scripts.json": ordinary, "key-scripts.json": of_keys}
"""What is written, and what makes it."""


def rendered(name: str) -> str:
    """The text of one of the files."""
    return json.dumps(FILES[name](), indent=1) + "\n"


def main() -> int:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name in FILES:
        (FOLDER / name).write_text(rendered(name), encoding="utf-8")
        print(f"docs/wire/{name} says what the scripts say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
