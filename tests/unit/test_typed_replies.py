"""Above the primitives nobody reads a reply: neither its letters nor its positions, nor what is in a request."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pawlock
from pawlock.core import outcomes
from pawlock.core.key import Key
from pawlock.core.outcomes import Dead, Granted, Queued, Unexpected
from pawlock.core.scripts import Script
from pawlock.primitives.key import KeyMutex
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.permits import SHARED, Permits
from tests.support.refusal import case

SRC = Path(pawlock.__file__).parent
MUTEX = Mutex("lock", "x", "pawlock:x")
_REPLIES = {"reply", "answer", "outcome"}
_LETTERS = [bytes([letter]) for letter in range(ord("A"), ord("Z") + 1)]
_INSIDES = {"Call", "Script", "make_call", "pack_words", "load", "for_several"}
_MAKERS = {"core/runtime.py", "core/scripts.py", "core/outcomes.py", "service/store"}
"""Where requests are described, or made anew from what came over HTTP; ``service/store`` has scripts of its own."""


def _modules() -> list[Path]:
    found = [path for room in ("core", "service") for path in (SRC / room).rglob("*.py")]
    return sorted(path for path in found if not _is_maker(path))


def _is_maker(path: Path) -> bool:
    place = path.relative_to(SRC).as_posix()
    return any(place.startswith(maker) for maker in _MAKERS)


def reads_of_replies(text: str) -> list[str]:
    """What of a module reads a reply by position, or compares with a letter."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in _LETTERS:
            found.append(f"line {node.lineno}: {node.value!r}")
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in _REPLIES
            and isinstance(node.slice, (ast.Constant, ast.Slice, ast.UnaryOp))
            and not (isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str))
        ):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def insides_of_requests(text: str) -> list[str]:
    """What of a module knows what a request of Redis is made of."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            found += [f"line {node.lineno}: {one.name}" for one in node.names if one.name in _INSIDES]
        elif isinstance(node, ast.Attribute) and node.attr in ("script", "numkeys", "evalsha"):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_nobody_above_the_primitives_reads_a_reply_and_the_core_knows_nothing_of_requests() -> None:
    assert len(_modules()) > 30
    for path in _modules():
        with case(path):
            text = path.read_text()
            assert not reads_of_replies(text)
            assert "core" not in path.parts or not insides_of_requests(text)


def test_a_module_that_reads_one_is_found() -> None:
    assert reads_of_replies('if reply[0] == b"H":\n    left = reply[3]\n')
    assert reads_of_replies("rest = answer[2:]")
    assert reads_of_replies("last = outcome[-1]")
    assert not reads_of_replies('told["asked"]')
    assert insides_of_requests("from pawlock.core.runtime import Call")
    assert insides_of_requests("name = call.script.name")


def test_every_outcome_is_immutable_and_named() -> None:
    records = [getattr(outcomes, name) for name in outcomes.__all__]
    classes = [one for one in records if isinstance(one, type) and one is not outcomes.Outcome]
    assert len(classes) > 30
    # The first request tells an answer from what brings one by this.
    assert all(issubclass(one, tuple) for one in classes)


def test_a_script_answers_in_words() -> None:
    call = MUTEX.acquire("t@h", 1, 1, wait=True, block=1, channel="-", max_queue=1)
    assert call.answer([b"H", b"1", 7, 30_000, 5]) == Granted(7, 30_000, 5)
    assert call.answer([b"Q", b"1", 2, 300, 400, 5, 1]) == Queued(2, 300, 400, foreign=True)
    assert call.answer([b"X", b"1"]) == Dead()
    assert call.answer([b"Z", b"1", 3]) == Unexpected([b"Z", 3])
    assert isinstance(call.answer([b"Q", b"1"]), Unexpected), "shorter than any script gives"


def test_what_is_said_of_the_mode_is_no_part_of_a_grant() -> None:
    permit = Permits("semaphore", "x", "pawlock:x", "permits", SHARED, 3).renew("t@h", 1, 1, "-")
    assert permit.answer([b"H", b"1", 7, 30_000, 5, b"1"]) == Granted(7, 30_000, 5)


def test_another_text_of_a_script_is_read_alike() -> None:
    script: Script = MUTEX.renew("t@h", 1, 1, "-").script
    assert replace(script, source=b"return 1").read is script.read
    shared = KeyMutex("lock", Key("x", "redisson")).renew("t@h", 1, 1, "-").script
    assert shared.source != script.source
    assert shared.read == script.read
