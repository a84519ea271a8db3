"""A primitive that is not pawlock's: a lock with keys of its own, and what breaks it, in its scripts or around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pawlock.core.runtime import Call
from pawlock.core.scripts import Script
from pawlock.primitives.registry import REGISTRY, Entry, register, unregister


@dataclass(frozen=True)
class Edit:
    """A change of scripts: in every one of them that contains it, a text becomes another."""

    old: str
    new: str


def edited(edits: tuple[Edit, ...], call: Call) -> Call:
    """A call of a script that was changed."""
    return call._replace(script=_script(call.script, edits))


_scripts: dict[tuple[str, tuple[Edit, ...]], Script] = {}


def _script(script: Script, edits: tuple[Edit, ...]) -> Script:
    key = script.sha, edits
    if key not in _scripts:
        body = script.source
        for edit in edits:
            body = body.replace(edit.old.encode(), edit.new.encode())
        _scripts[key] = replace(script, source=body)
    return _scripts[key]


class Edited:
    """A primitive whose scripts were changed."""

    def __init__(self, inner: Any, edits: tuple[Edit, ...]) -> None:
        self._inner = inner
        self._edits = edits

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            made = value(*args, **kwargs)
            return edited(self._edits, made) if isinstance(made, Call) else made

        return call


Wrap = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Variant:
    """A primitive that was broken on purpose.

    Attributes:
        of: The sound one.
        edits: What was changed in its scripts.
        wrap: What was put around it: takes the client and the lock, gives what stands for it.
        options: Options that it always has.
    """

    of: str = "lock"
    edits: tuple[Edit, ...] = ()
    wrap: Wrap | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, client: Any, name: str, **options: Any) -> Any:
        """A lock of it."""
        lock = REGISTRY[self.of].make(client, f"{name} of toys", **{**options, **self.options})
        if self.edits:
            lock._plan = replace(lock._plan, primitive=Edited(lock._plan.primitive, self.edits))
        return lock if self.wrap is None else self.wrap(client, lock)


@contextmanager
def registered(variant: Variant, kind: str = "toy", family: str = "") -> Iterator[Entry]:
    """The variant as a primitive of its own for a while."""
    # Its names are its own, so nobody of pawlock's is of its family, and `client.inspect` knows nothing of it.
    sound = replace(REGISTRY[variant.of], family=family, inspects=False, args=(), kwargs={}, part="")
    entry = replace(sound, kind=kind, summary="A toy.", factory=variant.make)
    try:
        yield register(entry)
    finally:
        unregister(kind)
