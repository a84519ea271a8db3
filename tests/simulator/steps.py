"""What a script of a mutex was asked and answered, as the invariants want to know it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pawlock.core.names import helper_key
from pawlock.core.runtime import Reply
from pawlock.core.scripts import Script, load
from tests.simulator.invariants import Step

__all__ = ["once_step", "step_of", "together_steps", "tomb_of", "words_of_wake"]

_WORDS = 3
_OF_WAKE = 3


@cache
def _wakers() -> frozenset[str]:
    package = "pawlock.primitives.key"
    return frozenset(
        load(package, name, wire).sha for name in ("leave", "force") for wire in ("", "redisson")
    )


def words_of_wake(script: Script) -> int:
    """How many arguments come before the token: of a key that is shared, how the others are woken."""
    return _OF_WAKE if script.sha in _wakers() else 0


def step_of(script: str, args: list[bytes], reply: Reply) -> Step:
    """One run of a script of one name."""
    status = reply[0].decode(), *reply[2:]
    first = args[0].decode()
    if script == "adopt":
        return Step(script, first, args[1].decode(), reply=status)
    if script == "inspect":
        return Step(script, "", reply=status)
    return Step(script, first, mode=int(args[3]) if script == "acquire" else 1, reply=status)


def once_step(script: str, args: list[bytes], reply: Reply, waiting: tuple[str, ...]) -> Step:
    """One run of a script of what is done once; ``waiting`` is who waited before it."""
    if script == "begin":
        return step_of("acquire", args, reply)
    if script == "finish":
        # Nobody waits any more for what is done.
        spent = waiting if reply[0] == b"R" else ()
        return Step("finish_leave", args[0].decode(), reply=(reply[0].decode(), *reply[2:]), spent=spent)
    return step_of(script, args, reply)


def together_steps(
    keys: tuple[bytes, ...], args: list[bytes], reply: Reply
) -> Iterator[tuple[tuple[bytes, ...], Step]]:
    """One run of the script that renews several holders, for each of them; what it left alone was only looked at."""
    for index, left in enumerate(reply[2]):
        name, fence = keys[2 * index : 2 * index + 2]
        others = [helper_key(name.decode(), f"1:{part}").encode() for part in ("queue", "tickets")]
        token = args[_WORDS * index].decode()
        step = (
            Step("renew", token, reply=("H", 0, left, reply[3]))
            if left
            else Step("inspect", "", reply=("S",))
        )
        yield (name, fence, *others), step


def tomb_of(script: str, args: list[bytes]) -> int:
    """For how many ms the token that leaves is with_tombstone."""
    at = {"leave": 1, "finish": 1}.get(script)
    return int(args[at]) if at is not None else 0
