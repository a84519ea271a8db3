"""The loader and the headers: what a header says is what the script does."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

import pytest
import redis

from pawlock.core.scripts import Script, for_several, header, load
from tests.support.refusal import case
from tests.support.servers import Server
from tests.unit.scripts.rig import DAY, KEYS, NAMES, PACKAGE

SHARED = ("_prelude", "_clock", "_fence", "_queue")


def text_of(name: str) -> str:
    package = "pawlock.primitives" if name.startswith("_") else PACKAGE
    return files(package).joinpath(f"{name}.lua").read_text()


def test_a_script_is_what_its_parts_say() -> None:
    for name in NAMES:
        with case(name):
            script = load(PACKAGE, name)
            assert script.name == name
            assert script.numkeys == len(KEYS[name])
            assert script.sha == hashlib.sha1(script.source).hexdigest()
            assert script.source.startswith(b"local call = redis.call\n"), (
                "no shebang: it makes a release fail for memory"
            )
            assert b"--@include" not in script.source
            assert load(PACKAGE, name) == script


def test_the_header_names_the_keys_and_arguments_in_use() -> None:
    for name in NAMES:
        with case(name):
            source = load(PACKAGE, name).source.decode()
            fields = header(text_of(name), name)
            keys = [key.strip() for key in fields["keys"].split(",")]
            assert tuple(keys) == KEYS[name]
            named = {"NAME": 1, "FENCE": 2, "QUEUE": 3, "TICKETS": 4}
            used = {int(index) for index in re.findall(r"KEYS\[(?:at \+ )?(\d+)\]", source)} | {len(keys)}
            used |= {index for word, index in named.items() if re.search(rf"\({word}|, {word}\b", source)}
            assert used == set(range(1, len(keys) + 1))
            args = re.sub(r"\([^)]*\)", "", fields["args"]).split(",")
            assert args[-1].strip() == "rid"
            read = {int(index) for index in re.findall(r"ARGV\[(?:at \+ )?(\d+)\]", source)}
            read |= {len(args) - 1} if "ARGV[#ARGV - 1]" in source else set()
            assert read == set(range(1, len(args)))


def test_a_script_for_several_names_has_keys_and_arguments_for_each() -> None:
    script = load(PACKAGE, "renew_all")
    wide = for_several(script, 3)
    assert (wide.numkeys, wide.numargs) == (6, 10)
    assert (wide.sha, wide.source) == (script.sha, script.source)
    assert wide.evalsha.startswith(b"*19\r\n$7\r\nEVALSHA\r\n$40\r\n")
    assert wide.evalsha.endswith(b"$1\r\n6\r\n")
    assert wide.eval.startswith(b"*19\r\n$4\r\nEVAL\r\n")
    assert for_several(script, 1).evalsha == script.evalsha


def test_units_are_in_the_names() -> None:
    for name in NAMES:
        with case(name):
            for arg in re.sub(r"\([^)]*\)", "", header(text_of(name), name)["args"]).split(","):
                assert not re.search(r"ttl|tomb$|close$", arg) or arg.strip().endswith("_ms")


def test_numbers_become_text_in_one_way_only() -> None:
    for name in (*NAMES, *SHARED):
        with case(name):
            code = "\n".join(line for line in text_of(name).splitlines() if not line.strip().startswith("--"))
            assert "tostring" not in code
            assert set(re.findall(r"%[.\d]*[a-z]\b", code)) <= {"%.0f", "%d", "%s"}
            assert "'PX'" not in code
            assert "'EX'" not in code
            assert max(map(len, text_of(name).splitlines())) <= 120


def test_the_clock_is_read_once() -> None:
    for name in NAMES:
        with case(name):
            source = load(PACKAGE, name).source.decode()
            readings = source.count("'TIME'")
            assert readings in {1, 2, 3}
            assert source.count("if not now_us then\n  local time = call('TIME')") == readings, (
                "a second one reads nothing"
            )


def test_uncontended_calls_are_few(server: Server) -> None:
    """Each inner call costs the server's one thread."""
    with redis.Redis(unix_socket_path=server.socket_path, decode_responses=True) as client:

        def calls(script: Script, *args: object) -> list[str]:
            keys = ["n", "f", "q", "t", "d", "h"]
            client.config_resetstat()
            client.eval(script.source.decode(), 6, *keys, *map(str, args))
            stats = client.info("commandstats")
            return sorted(
                name.removeprefix("cmdstat_")
                for name, one in stats.items()
                for _ in range(one["calls"])
                if not name.startswith(("cmdstat_eval", "cmdstat_config", "cmdstat_info"))
            )

        acquire, leave = load(PACKAGE, "acquire"), load(PACKAGE, "leave")
        first = calls(acquire, "a@h", 1000, 300, 1, 1, "ch", 100, DAY, "r")
        # The first grant of a name begins its fence key, for which the quick way out has no room.
        assert first == sorted(
            ["exists"] * 2 + ["get", "hmget", "hmget", "hset", "pexpireat", "set", "time", "zrange"]
        )
        assert calls(leave, "a@h", 0, 0, DAY, "r") == ["del", "get", "zrange"]
        again = calls(acquire, "a@h", 1000, 300, 1, 1, "ch", 100, DAY, "r")
        assert again == ["exists", "hmget", "hset", "set", "time"]
        client.eval(acquire.source.decode(), 6, *"nfqtdh", "b@h", 1000, 300, 1, 1, "ch", 100, DAY, "r")
        passed_on = calls(leave, "a@h", 0, 0, DAY, "r")
        reads = ["get", "hget", "hmget", "time", "zrange"]
        assert passed_on == sorted([*reads, "hdel", "hset", "publish", "set", "zrem"])


def test_a_header_that_lacks_a_line_is_refused() -> None:
    fields = ("keys", "args", "returns", "invariant")
    for gone in fields:
        lines = [f"-- {field}: something" for field in fields if field != gone]
        with pytest.raises(ValueError, match=f"script 'odd': the header lacks {gone}"):
            header("\n".join(lines), "odd")


def test_a_header_may_go_on_over_several_lines() -> None:
    body = "-- What it does.\n-- keys: a, b\n-- args: c,\n--   rid\n-- returns: x\n-- invariant: y\n--   z\n"
    body += "return 1\n-- keys: none, as this is no header any more\n"
    assert header(body, "odd") == {"keys": "a, b", "args": "c, rid", "returns": "x", "invariant": "y z"}


def test_an_unknown_script_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        load(PACKAGE, "nothing")


def test_the_guard_of_keys_has_a_header_like_the_others() -> None:
    text = files("pawlock.fencing").joinpath("guard.lua").read_text()
    assert header(text, "guard")["keys"] == "data, fence"
