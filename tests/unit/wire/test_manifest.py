"""docs/wire/scripts.json is what pawlock sends: texts, keys and arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from pawlock.core.protocol.names import helper_key
from pawlock.core.protocol.primitive import Leaving
from pawlock.core.protocol.runtime import Call
from pawlock.primitives.barrier import Barrier
from pawlock.primitives.election import Ballot
from pawlock.primitives.key import KeyMutex, shared_word
from pawlock.primitives.latch import Latch
from pawlock.primitives.mutex import Mutex, Together
from pawlock.primitives.once import OnceMutex
from pawlock.primitives.permits import Permits
from pawlock.primitives.session import SessionKeys
from tests.support.servers import Server
from tools import wire_scripts

WIRE = Path(__file__).resolve().parents[3] / "docs" / "wire"
K, TOKEN = "pawlock:n", f"{'a' * 32}@host:1/main"


@pytest.mark.parametrize("name", wire_scripts.FILES)
def test_the_file_is_what_the_scripts_say(name: str) -> None:
    # Compared as a whole: a difference of 400 KB would not be shown line by line.
    same = (WIRE / name).read_text(encoding="utf-8") == wire_scripts.rendered(name)
    assert same, f"run python tools/wire_scripts.py: docs/wire/{name} differs from the scripts"


@pytest.mark.parametrize("name", wire_scripts.FILES)
def test_a_server_knows_each_script_by_the_hash_in_the_file(name: str, server: Server) -> None:
    with redis.Redis(unix_socket_path=server.socket_path, decode_responses=True) as plain:
        for script in scripts(name).values():
            source = script["source"].encode()
            assert hashlib.sha1(source).hexdigest() == script["sha1"]
            assert plain.script_load(source) == script["sha1"]


def scripts(name: str = "scripts.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((WIRE / name).read_text(encoding="utf-8"))["scripts"]
    return found


def key_of(key: dict[str, str], base: str = K) -> str:
    """The key that an entry of the file describes, by its rules alone."""
    suffix = key.get("suffix", "")
    for word in ("<token>", "<old_token>", "<id>"):
        suffix = suffix.replace(word, TOKEN)
    return (
        key["key"].replace("{N}", "{" + base + "}")
        if "key" in key
        else helper_key(base, suffix)
        if suffix
        else base
    )


WAIT: dict[str, Any] = {"wait": True, "block": 1, "channel": "c", "max_waiters": 9}
MUTEX, PERMITS = Mutex("lock", "n", K), Permits("semaphore", "n", K, "permits", "1", 3)
SESSION = SessionKeys("pawlock")
SENT: dict[str, Callable[[], Call]] = {
    "mutex/acquire": lambda: MUTEX.acquire(TOKEN, 1, 2, **WAIT),
    "mutex/renew": lambda: MUTEX.renew(TOKEN, 1, 2, ""),
    "mutex/beat": lambda: MUTEX.beat(TOKEN, 1, 2, "", ["x"]),
    "mutex/leave": lambda: MUTEX.leave(TOKEN, 0, 0),
    "mutex/swap": lambda: MUTEX.swap(Leaving(TOKEN), TOKEN, 1, 2, block=1, channel="c", max_waiters=9),
    "mutex/adopt": lambda: MUTEX.adopt("x", TOKEN, 1),
    "mutex/inspect": lambda: MUTEX.inspect(9),
    "mutex/peek": MUTEX.peek,
    "mutex/force": lambda: MUTEX.force(TOKEN.encode(), 0, ""),
    "mutex/multi": lambda: Together([MUTEX]).acquire([TOKEN], [1]),
    "mutex/renew_all": lambda: Mutex.renew_all([(MUTEX, TOKEN, 1)]),
    "election/acquire": lambda: Ballot("n", K, 9).acquire(TOKEN, 1, 2, **WAIT),
    "once/begin": lambda: OnceMutex("n", K).acquire(TOKEN, 1, 2, **WAIT),
    "permits/acquire": lambda: PERMITS.acquire(TOKEN, 1, 2, **WAIT),
    "permits/leave": lambda: PERMITS.leave(TOKEN, 0, 0),
    "latch/wait": lambda: Latch("n", K, 1, 1, 1, 1, 1).wait(TOKEN, 1, "c", ""),
    "barrier/arrive": lambda: Barrier("n", K, 2, 1).arrive(TOKEN, "c", stay=False),
    "session/publish": lambda: SESSION.publish(TOKEN, 1, 1, "x"),
}


@pytest.mark.parametrize("name", SENT)
def test_keys_and_arguments_are_those_that_pawlock_sends(name: str) -> None:
    script, call = scripts()[name], SENT[name]()
    words = [word.decode() for word in call.words()]
    base = "pawlock" if name.startswith("session/") else K
    keys = [key_of(key, base) for key in script["keys"]]
    assert words[: len(keys)] == keys
    # The transport appends the id of the request.
    assert len(words) == len(keys) + len(script["arguments"]) - 1
    assert call.script.sha == script["sha1"]


@pytest.mark.parametrize("wire", ["plain", "redisson"])
def test_keys_and_arguments_of_a_shared_key_are_those_that_pawlock_sends(wire: str) -> None:
    mutex = KeyMutex("lock", "n", K, wire=wire, shared=shared_word(1, 2))
    for call in (mutex.acquire(TOKEN, 1, 2, **WAIT), mutex.leave(TOKEN, 0, 0), mutex.renew(TOKEN, 1, 2, "")):
        script = scripts("key-scripts.json")[f"mutex/{call.script.name}@{wire}"]
        words = [word.decode() for word in call.words()]
        keys = [key_of(key) for key in script["keys"]]
        assert words[: len(keys)] == keys
        assert len(words) == len(keys) + len(script["arguments"]) - 1
        names = [arg["name"] for arg in script["arguments"]]
        assert words[len(keys) + names.index("shared")] == "1 2 -"
        assert call.script.sha == script["sha1"]
