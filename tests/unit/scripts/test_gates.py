"""The headers of the scripts say what the scripts do; a key of a wrong type stops each of them before it writes."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import redis

from pawlock.core.scripts import header, load
from pawlock.primitives.barrier import Barrier
from pawlock.primitives.election import Ballot
from pawlock.primitives.latch import Latch
from tests.support.refusal import case
from tests.support.scripts import package_of
from tests.support.servers import Server
from tests.unit.scripts.clocked import PACKAGES, names_of

SCRIPTS = [(package, name) for package in PACKAGES for name in names_of(package)]
A, B = "a" * 24 + "@host:1/a", "b" * 24 + "@host:1/b"
LATCH = Latch("n", "n", 2, 60_000, 3000, 60_000, 10)
BARRIER = Barrier("n", "n", 2, 3000)
BALLOT = Ballot("n", "n", 10)
WAIT: dict[str, Any] = {"wait": True, "block": 1, "channel": "ch", "max_queue": 10}

# Of each script: a call, and the calls before it that make it write.
CALLS = {
    ("latch", "count_down"): ([LATCH.count_down(B, "p", 1)], LATCH.count_down(A, "q", 1)),
    ("latch", "wait"): ([LATCH.count_down(B, "", 1)], LATCH.wait(A, 9 * 10**15, "ch", "")),
    ("latch", "reset"): ([LATCH.count_down(B, "p", 1)], LATCH.reset(A)),
    ("latch", "inspect"): ([LATCH.count_down(B, "", 1)], LATCH.inspect()),
    ("barrier", "arrive"): ([BARRIER.arrive(B, "ch", stay=False)], BARRIER.arrive(A, "ch", stay=False)),
    ("barrier", "leave"): ([BARRIER.arrive(A, "ch", stay=False)], BARRIER.leave(A, 0)),
    ("barrier", "inspect"): ([BARRIER.arrive(A, "ch", stay=False)], BARRIER.inspect()),
    ("election", "acquire"): ([BALLOT.acquire(B, 9000, 900, **WAIT)], BALLOT.acquire(A, 9000, 900, **WAIT)),
    ("election", "observe"): ([BALLOT.acquire(B, 9000, 900, **WAIT)], BALLOT.observe(A, 900, "ch", "")),
}


def text_of(package: str, name: str) -> str:
    return files(package_of(package)).joinpath(f"{name}.lua").read_text()


def test_the_header_names_the_keys_and_arguments_in_use() -> None:
    for package, name in SCRIPTS:
        with case(package, name):
            source = load(package_of(package), name).source.decode()
            assert "--@include" not in source
            assert source.startswith("local call = redis.call\n")
            fields = header(text_of(package, name), name)
            args = [arg.strip() for arg in re.sub(r"\([^)]*\)", "", fields["args"]).split(",")]
            assert args[-1] == "rid"
            read = {int(index) for index in re.findall(r"ARGV\[(\d+)\]", source)}
            read |= {len(args) - 1} if "ARGV[#ARGV - 1]" in source else set()
            assert read == set(range(1, len(args)))
            for arg in args:
                assert not re.search(r"ttl|tomb$|close$|keep$|remember$", arg) or arg.endswith("_ms")
            keys = [key.strip() for key in fields["keys"].split(",")]
            assert max(map(int, re.findall(r"KEYS\[(\d+)\]", source))) <= max(len(keys), 5)


def test_numbers_become_text_in_one_way_only() -> None:
    for package, name in [*SCRIPTS, ("latch", "_latch"), ("barrier", "_barrier")]:
        with case(package, name):
            lines = text_of(package, name).splitlines()
            code = "\n".join(line for line in lines if not line.strip().startswith("--"))
            assert "tostring" not in code
            assert "'PX'" not in code
            assert max(map(len, lines)) <= 120


def test_a_key_of_a_wrong_type_stops_a_script_before_it_writes(server: Server) -> None:
    with redis.Redis(unix_socket_path=server.socket_path, decode_responses=True) as client:
        for name, (before_it, asked) in CALLS.items():
            keys = [word.decode() for word in asked.words()[: asked.script.numkeys]]
            refused = 0
            for key in keys:
                client.flushall()
                for one in before_it:
                    _run(client, one)
                # A wait is in the round that is there.
                wait = name == ("latch", "wait")
                call = LATCH.wait(A, _present(client), "ch", "") if wait else asked
                client.delete(key)
                client.rpush(key, "of somebody else")
                before = _dump(client)
                with case(name, key):
                    if error := _refusal(client, call):
                        assert "WRONGTYPE" in error
                        assert _dump(client) == before
                        refused += 1
            # The tombstone is of no interest to them, or only whether it is there.
            assert refused >= len(keys) - 1, name


def _present(client: Any) -> int:
    return int(client.hget("{n}:1:latch", "round"))


def _run(client: Any, call: Any) -> Any:
    words = [word.decode() for word in call.words()]
    return client.eval(call.script.source.decode(), call.script.numkeys, *words, "rid")


def _refusal(client: Any, call: Any) -> str:
    try:
        _run(client, call)
    except redis.ResponseError as error:
        return str(error)
    return ""


def _dump(client: Any) -> dict[bytes, tuple[bool, bytes]]:
    raw: Any = redis.Redis(unix_socket_path=client.connection_pool.connection_kwargs["path"])
    try:
        return {key: (raw.pttl(key) > 0, raw.dump(key)) for key in raw.keys("*")}
    finally:
        raw.close()
