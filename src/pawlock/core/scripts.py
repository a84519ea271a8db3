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
from functools import cache, cached_property, partial
from importlib.resources import files
from typing import Any, TypeAlias

from pawlock.core.outcomes import Outcome, Unexpected

__all__ = ["SIZES", "Readers", "Replies", "Script", "for_several", "header", "load", "pack_words"]

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


Replies: TypeAlias = dict[bytes, Callable[[Sequence[Any]], Outcome]]
"""What becomes of a reply, by its letter: of the list without that and without the request id."""


class Readers(Replies):
    """The same of one script."""

    def __missing__(self, letter: bytes) -> Callable[[Sequence[Any]], Outcome]:
        """A reply that no script of pawlock gives."""
        return partial(_unexpected, letter)


def _unexpected(letter: object, fields: Sequence[Any]) -> Unexpected:
    return Unexpected([letter, *fields])


@dataclass(frozen=True)
class Script:
    """One script as it is sent to a server.

    Attributes:
        name: the file's name without ``.lua``.
        source: the whole text: prelude and body.
        numkeys: how many keys a call must pass, from the header.
        numargs: how many arguments, the request id included, from the header.
        read: how its replies are read.
        variant: as ``load`` was given it.
        before: what is sent before it, if its text is to go with each call.
    """

    name: str
    source: bytes
    numkeys: int
    numargs: int
    read: Readers = field(default_factory=Readers, repr=False, compare=False)
    variant: str = ""
    before: bytes = b""

    @cached_property
    def sha(self) -> str:
        """SHA-1 of the source as 40 hex digits, the name ``EVALSHA`` knows it by."""
        return hashlib.sha1(self.source, usedforsecurity=False).hexdigest()

    @cached_property
    def evalsha(self) -> bytes:
        """The packed beginning of every ``EVALSHA`` of it, up to its keys."""
        return self.eval if self.before else self._begin(b"EVALSHA", self.sha.encode())

    @cached_property
    def eval(self) -> bytes:
        """The same of an ``EVAL``, for a server that does not know it yet."""
        return self._begin(b"EVAL", self.source)

    def _begin(self, *words: bytes) -> bytes:
        size = b"*%d\r\n" % (3 + self.numkeys + self.numargs)
        return self.before + size + pack_words(*words, b"%d" % self.numkeys)


def load(package: str, name: str, variant: str = "", *, read: Replies | None = None) -> Script:
    """Read one script of a package.

    Args:
        package: dotted name of the package that holds the file, for example ``"pawlock.primitives.mutex"``.
        name: file name without ``.lua``.
        variant: ``"redisson"`` for a key that is shared with Redisson; it takes one more key, before the last.
        read: How its replies are read; None: nobody reads them.

    Returns:
        The script, ready to be sent.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file's header lacks a line, or its include lines name nothing.
    """
    body = _read(package, name)
    fields = header(body, name)
    prelude = _read(_KEY, f"_{variant}") if variant else _read(_SHARED, _PRELUDE)
    data = _without_comments(f"{prelude}\n{_include(package, body)}").encode("ascii")
    keys = len(_listed(fields["keys"])) + bool(variant)
    return Script(name, data, keys, len(_listed(fields["args"])), Readers(read or {}), variant)


@cache
def for_several(script: Script, times: int) -> Script:
    """A script that takes several names, for so many of them: the same text, with its keys and arguments for each.

    Args:
        script: What ``load`` gave; its header lists the keys and arguments of one name.
        times: How many names.
    """
    return replace(script, numkeys=script.numkeys * times, numargs=(script.numargs - 1) * times + 1)


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
