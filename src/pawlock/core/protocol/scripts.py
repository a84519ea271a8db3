"""The server-side scripts: read from the packages that hold them, checked, hashed once.

A script file is Lua with a header that states its keys, arguments, replies and the sentence its safety
rests on. What it runs as is the common prelude followed by the file, with each include line replaced, also in what
was included.

The variant ``"redisson"`` of a script is the same file behind another prelude, to which the holder of a name is a hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

from pawlock.core.protocol.outcomes import Outcome, Unexpected

__all__ = [
    "SIZES",
    "Readers",
    "Script",
    "for_several",
    "header",
    "load",
    "pack_words",
    "with_source",
]

_SHARED = "pawlock.primitives"
_KEY = "pawlock.primitives.key"
_PRELUDE = "_prelude"
_REQUIRED = ("keys", "args", "returns", "invariant")
_INCLUDE = re.compile(r"^--@include (?:(\w+)\.)?(\w+)$", re.MULTILINE)
_FIELD = re.compile(r"^-- (keys|args|returns|invariant):[ \t]*(\S.*)$")


class _Sizes(dict[int, bytes]):
    """What stands before a word of so many bytes. Pieces joined take half of the time of pieces formatted."""

    def __missing__(self, size: int) -> bytes:
        made = self[size] = b"$%d\r\n" % size
        return made


SIZES: dict[int, bytes] = _Sizes()
"""The length before a word of a request, as it is sent; there are no more of them than names and tokens are long."""


class Readers(dict[bytes, Callable[[Sequence[Any]], Outcome]]):
    """What becomes of a reply, by its letter: of the list without that and without the request id."""

    def __missing__(self, letter: bytes) -> Callable[[Sequence[Any]], Outcome]:
        """A reply that no script of pawlock gives."""
        return partial(_unexpected, letter)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def _unexpected(letter: object, fields: Sequence[Any]) -> Unexpected:
    return Unexpected([letter, *fields])


_NONE = Readers()
_reads: dict[tuple[str, str], Readers] = {}


@dataclass(frozen=True, slots=True)
class Script:
    """One script as it is sent to a server.

    Attributes:
        name: the file's name without ``.lua``.
        source: the whole text: prelude and body.
        sha: SHA-1 of the source as 40 hex digits, the name ``EVALSHA`` knows it by.
        numkeys: how many keys a call must pass, from the header.
        numargs: how many arguments, the request id included, from the header.
        evalsha: the packed beginning of every ``EVALSHA`` of it, up to its keys.
        eval: the same of an ``EVAL``, for a server that does not know it yet.
        read: how its replies are read.
        variant: as ``load`` was given it.
    """

    name: str
    source: bytes
    sha: str
    numkeys: int
    numargs: int
    evalsha: bytes
    eval: bytes
    read: Readers = field(default=_NONE, repr=False)
    variant: str = ""


def load(package: str, name: str, variant: str = "", *, read: Readers | None = None) -> Script:
    """Read one script of a package, once per process.

    Args:
        package: dotted name of the package that holds the file, for example ``"pawlock.primitives.mutex"``.
        name: file name without ``.lua``.
        variant: ``"redisson"`` for a key that is shared with Redisson; it takes one more key, before the last.
        read: How its replies are read; None: as was said when it was loaded for the first time.

    Returns:
        The script, ready to be sent.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file's header lacks a line, or its include lines name nothing.
    """
    if read is not None:
        _reads[package, name] = read
    return _load(package, name, variant, _reads.get((package, name), _NONE))


@cache
def _load(package: str, name: str, variant: str, read: Readers) -> Script:
    body = _read(package, name)
    fields = header(body, name)
    prelude = _read(_KEY, f"_{variant}") if variant else _read(_SHARED, _PRELUDE)
    data = _without_comments(f"{prelude}\n{_include(package, body)}").encode("ascii")
    keys = len(_listed(fields["keys"])) + bool(variant)
    return _packed(name, data, keys, len(_listed(fields["args"])), read, variant)


def with_source(script: Script, source: bytes) -> Script:
    """The same script with another text, which takes as many keys and arguments: for tests that change a script.

    Args:
        script: the script.
        source: what is to run.
    """
    return replace(
        _packed(script.name, source, script.numkeys, script.numargs, script.read), variant=script.variant
    )


def _packed(name: str, data: bytes, numkeys: int, numargs: int, read: Readers, variant: str = "") -> Script:
    sha = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    begin = b"*%d\r\n" % (3 + numkeys + numargs)
    evalsha, by_text = (
        begin + pack_words(*words, str(numkeys).encode())
        for words in ((b"EVALSHA", sha.encode()), (b"EVAL", data))
    )
    return Script(name, data, sha, numkeys, numargs, evalsha, by_text, read, variant)


@cache
def for_several(script: Script, times: int) -> Script:
    """A script that takes several names, for so many of them: the same text, with its keys and arguments for each.

    Args:
        script: What ``load`` gave; its header lists the keys and arguments of one name.
        times: How many names.
    """
    numargs = (script.numargs - 1) * times + 1
    return _packed(script.name, script.source, script.numkeys * times, numargs, script.read)


def _include(package: str, text: str) -> str:
    # What only the scripts of one package share lies beside them; `mutex.acquire` is a whole script of another one,
    # to be run by this.
    def found(line: re.Match[str]) -> str:
        source = f"{_SHARED}.{line[1]}" if line[1] else package
        if not files(source).joinpath(f"{line[2]}.lua").is_file():
            source = _SHARED
        return _include(source, _read(source, line[2]))

    return _INCLUDE.sub(found, text)


def _listed(field: str) -> list[str]:
    # What stands in parentheses explains a word of the list.
    return re.sub(r"\([^)]*\)", "", field).split(",")


def pack_words(*words: bytes) -> bytes:
    """Words as they stand inside a request: each with its length."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def header(body: str, name: str) -> dict[str, str]:
    """Parse the header comment of a script file.

    Args:
        body: the file's text.
        name: the file's name, for the message of an error.

    Returns:
        ``keys``, ``args``, ``returns`` and ``invariant``, continuation lines joined by one space.

    Raises:
        ValueError: one of the four is missing or empty.
    """
    fields: dict[str, str] = {}
    current = ""
    for line in body.splitlines():
        if not line.startswith("--"):
            break
        found = _FIELD.match(line)
        if found is not None:
            current = found[1]
            fields[current] = found[2].strip()
        elif current and line.startswith("--  "):
            fields[current] += f" {line[2:].strip()}"
    missing = [field for field in _REQUIRED if field not in fields]
    if missing:
        raise ValueError(f"script {name!r}: the header lacks {', '.join(missing)}")
    return fields


def _read(package: str, name: str) -> str:
    return files(package).joinpath(f"{name}.lua").read_text(encoding="ascii")


def _without_comments(source: str) -> str:
    # Whole-line comments only: they are half of the text, and a first run on a server sends all of it.
    lines = (line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("--"))
    return "\n".join(lines) + "\n"
