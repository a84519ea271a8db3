"""docs/wire/scripts.json is what pawlock sends: texts, keys and arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

import pawlock
from pawlock.core.names import check_namespace, helper_key, key_of
from pawlock.core.runtime import Call
from pawlock.primitives.barrier import Barrier
from pawlock.primitives.election import Ballot
from pawlock.primitives.latch import Latch
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.namespace import NamespaceKeys
from pawlock.primitives.once import OnceMutex
from pawlock.primitives.permits import Permits
from tests.support.servers import Server
from tools import wire_scripts

NAMES = Path(__file__).resolve().parents[3] / "docs" / "wire" / "names.json"
K, TOKEN = "pawlock:n", f"{'a' * 32}@host:1/main"


def test_the_file_is_what_the_scripts_say() -> None:
    # Compared as a whole: a difference of 400 KB would not be shown line by line.
    same = wire_scripts.FILE.read_text(encoding="utf-8") == wire_scripts.rendered()
    assert same, "run python tools/wire_scripts.py: docs/wire/scripts.json differs from the scripts"


def test_a_server_knows_each_script_by_the_hash_in_the_file(server: Server) -> None:
    with redis.Redis(unix_socket_path=server.socket_path, decode_responses=True) as plain:
        for script in scripts().values():
            source = script["source"].encode()
            assert hashlib.sha1(source).hexdigest() == script["sha1"]
            assert plain.script_load(source) == script["sha1"]


def test_the_keys_of_names_that_clients_check_themselves_against_are_pawlocks() -> None:
    known = json.loads(NAMES.read_text(encoding="utf-8"))["names"]
    assert len(known) > 20
    for one in known:
        namespace, name = one["namespace"], one["name"]
        try:
            key = key_of(check_namespace(namespace), name)
        except pawlock.ConfigurationError:
            assert "key" not in one, (namespace, name)
            continue
        assert key == one["key"]
        for suffix, helper in one["helpers"].items():
            assert helper_key(key, suffix) == helper


def scripts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(wire_scripts.FILE.read_text(encoding="utf-8"))["scripts"]
    return found


def described(key: dict[str, str], base: str) -> str:
    """The key that an entry of the file describes, by its rules alone."""
    suffix = key["suffix"]
    for word in ("<token>", "<old_token>", "<process>"):
        suffix = suffix.replace(word, TOKEN)
    return helper_key(base, suffix) if suffix else base


WAIT: dict[str, Any] = {"wait": True, "block": 1, "channel": "c", "max_queue": 9}
MUTEX, PERMITS = Mutex("lock", "n", K), Permits("semaphore", "n", K, "permits", "1", 3)
NAMESPACE = NamespaceKeys("pawlock")
SENT: dict[str, Callable[[], Call]] = {
    "mutex/acquire": lambda: MUTEX.acquire(TOKEN, 1, 2, **WAIT),
    "mutex/renew": lambda: MUTEX.renew(TOKEN, 1, 2, ""),
    "mutex/leave": lambda: MUTEX.leave(TOKEN, 0, 0),
    "mutex/adopt": lambda: MUTEX.adopt("x", TOKEN, 1),
    "mutex/inspect": lambda: MUTEX.inspect(9),
    "mutex/peek": MUTEX.peek,
    "mutex/force": lambda: MUTEX.force(TOKEN.encode(), 0),
    "mutex/renew_all": lambda: Mutex.renew_all([(MUTEX, TOKEN, 1)]),
    "election/acquire": lambda: Ballot("n", K, 9).acquire(TOKEN, 1, 2, **WAIT),
    "once/begin": lambda: OnceMutex("n", K).acquire(TOKEN, 1, 2, **WAIT),
    "permits/acquire": lambda: PERMITS.acquire(TOKEN, 1, 2, **WAIT),
    "permits/leave": lambda: PERMITS.leave(TOKEN, 0, 0),
    "latch/wait": lambda: Latch("n", K, 1, 1, 1, 1, 1).wait(TOKEN, 1, "c", ""),
    "barrier/arrive": lambda: Barrier("n", K, 2, 1).arrive(TOKEN, "c", stay=False),
    "namespace/waits": lambda: NAMESPACE.write_waits(TOKEN, "c", "x"),
}


def test_keys_and_arguments_are_those_that_pawlock_sends() -> None:
    known = scripts()
    for name, make in SENT.items():
        script, call = known[name], make()
        words = [word.decode() for word in call.words()]
        base = "pawlock" if name.startswith("namespace/") else K
        keys = [described(key, base) for key in script["keys"]]
        assert words[: len(keys)] == keys, name
        # The transport appends the id of the request.
        assert len(words) == len(keys) + len(script["arguments"]) - 1, name
        assert call.script.sha == script["sha1"], name
