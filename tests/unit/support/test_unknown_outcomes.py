"""The search against small histories made by hand, good and bad, with calls whose outcome nobody knows."""

from __future__ import annotations

import pytest

from tests.support.history import (
    FencedMutex,
    History,
    Mode,
    Model,
    ReadWrite,
    Semaphore,
    linearizable,
)


def told(text: str) -> History:
    """A history from words, one call after the other: ``A+7`` A acquires with fence 7, ``A-`` A's last is released.

    A ``?`` at the end: nobody knows; ``!``: it failed; ``r``: to read; a digit before the process: so many permits;
    ``A=`` a downgrade.
    """
    history, held, at = History(), dict[str, list[str]](), 0.0
    for word in text.split():
        permits, rest = (int(word[0]), word[1:]) if word[0].isdigit() else (1, word)
        who, sign, more = rest[0], rest[1], rest[2:]
        fence = int("".join(filter(str.isdigit, more)) or 0)
        mode = Mode.SHARED if "r" in more else Mode.EXCLUSIVE
        if sign == "+":
            call = history.invoke(at, who, "acquire", "n", mode=mode, permits=permits)
            held.setdefault(who, []).append(call)
        else:
            action = "release" if sign == "-" else "downgrade"
            lease = held[who].pop() if sign == "-" else held[who][-1]
            call = history.invoke(at, who, action, "n", lease=lease)
        if "?" in more:
            history.info(at + 1, call)
        elif "!" in more:
            history.fail(at + 1, call)
        else:
            history.ok(at + 1, call, fence=fence or None)
        at += 2
    return history


_ONE_OWNER = ("A+1 A- B+2", "A+1 A-? B+2", "A+1? B+2 B- C+3", "A+? B+? C+? D+9", "A+1 A-? A+2", "A+! B+2")
_TWO_OWNERS = ("A+1 B+2", "A+1 A-! B+2", "A+1 B+2 A-", "A+? B+2 C+3", "A+1 A-? B+2 C+3")

GOOD: list[tuple[Model, str]] = [
    *[(FencedMutex(), text) for text in _ONE_OWNER],
    (Semaphore(3), "2A+ 1B+ 1C+? B-"),
    (Semaphore(3), "2A+ A-? 3B+"),
    (Semaphore(3), "1A+ 1A+ 1A+"),
    (ReadWrite(), "A+1r B+2r A- B- C+3"),
    (ReadWrite(), "A+1 A=  B+2r"),
    (ReadWrite(), "A+1 A=? B+2r"),
    (ReadWrite(), "A+1r A-? B+2"),
    (ReadWrite(), "A+? B+2r C+3r"),
]
BAD: list[tuple[Model, str]] = [
    *[(FencedMutex(), text) for text in (*_TWO_OWNERS, "A+5 A- B+4", "A+5 A-? B+5", "A+ A+")],
    (Semaphore(3), "2A+ 2B+"),
    (Semaphore(3), "2A+ A-! 2B+"),
    (Semaphore(3), "2A+ 2A+"),
    (Semaphore(3), "3A+? 2B+ 2C+"),
    (ReadWrite(), "A+1r B+2"),
    (ReadWrite(), "A+1 B+2r"),
    (ReadWrite(), "A+1 A= B+2"),
    (ReadWrite(), "A+1 A=! B+2r"),
    (ReadWrite(), "A+1r A-? B+2 C+3"),
    (ReadWrite(), "A+2r B+1r"),
]


@pytest.mark.parametrize(
    ("model", "text"), GOOD, ids=lambda one: one if isinstance(one, str) else type(one).__name__
)
def test_what_may_have_been_is_let_pass(model: Model, text: str) -> None:
    verdict = linearizable(told(text), model)
    assert verdict, str(verdict)


@pytest.mark.parametrize(
    ("model", "text"), BAD, ids=lambda one: one if isinstance(one, str) else type(one).__name__
)
def test_what_cannot_have_been_is_found(model: Model, text: str) -> None:
    assert not linearizable(told(text), model)
