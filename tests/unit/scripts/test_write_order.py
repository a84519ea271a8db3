"""No script can be stopped after its first write, on any path; and what a server without memory refuses."""

from __future__ import annotations

from tests.support.refusal import case
from tests.unit.scripts.write_order import HOME, Findings, assembled, examine, scripts

FILES = dict(scripts())
REDISSON = [f"mutex/{name}" for name in ("acquire", "renew", "adopt", "inspect", "peek")] + [
    "key/leave",
    "key/force",
]

CALLERS = frozenset({"fencing/guard"})
"""Runs a command of the caller's, which may fail: the fence is noted first, and alone refuses only older holders."""

EITHER = {
    "barrier/arrive": "who is there stays; who comes anew is refused",
    "election/observe": "who observes goes on; who comes anew is refused",
    "latch/count_down": "a latch that is there is counted down; a new one is refused",
    "latch/reset": "a latch that is there is reset; a new one is refused",
    "latch/wait": "who waits goes on; who comes anew, or to a new latch, is refused",
    "once/finish": "a result is refused; a holder that lost leaves the queue, and the next is granted the name",
}
"""What some calls of a script meet, and others do not."""

REFUSED = frozenset(
    {
        "election/acquire", "mutex/acquire", "once/begin",
        "permits/acquire", "permits/limit", "redlock/grant",
        "namespace/waits", "store/hold", "store/once", "store/open",
    }
)  # fmt: skip
"""What gives something new: nothing but the fence record is written on a server without memory."""

# A script, a part of it, and what a change of it would be that looks as harmless.
PLANTED = {
    "a downgrade takes the writer out first": (
        "permits/renew",
        "    call('ZADD', NAME, digits(held.expiry), '1:' .. token)\n    call('ZREM', NAME, 'x:' .. token)\n",
        "    call('ZREM', NAME, 'x:' .. token)\n    call('ZADD', NAME, digits(held.expiry), '1:' .. token)\n",
    ),
    "what is remembered is swept first": (
        "latch/count_down",
        "  call('ZADD', SEEN, digits(now_ms + remember_ms), token)\n",
        ("  call('ZREMRANGEBYSCORE', SEEN, '-inf', digits(now_ms))\n"
        "  call('ZADD', SEEN, digits(now_ms + remember_ms), token)\n"),
    ),
    "the dead go before others hold": (
        "permits/leave",
        "local stale = settle(state, found)\n",
        "bury_holders(state, found, {})\nlocal stale = settle(state, found)\n",
    ),
    "a dead ticket goes before the new one comes": (
        "mutex/acquire",
        "  local cur = found.token == token and found.cur\n",
        "  local cur = found.token == token and found.cur\n  remove(gone)\n",
    ),
    "the name is read after it was deleted": (
        "election/leave",
        "redis.pcall('GET', NAME)",
        "call('GET', NAME)",
    ),
    "the queue is looked at after somebody left it": (
        "mutex/leave",
        "remove(found.drop)\n",
        "remove(found.drop)\nlocal left = call('ZCARD', QUEUE)\n",
    ),
    "the wire version is looked at too late": (
        "mutex/force",
        "local version = fence[2]\n",
        "local version = fence[2]\ncall('PEXPIREAT', FENCE, 1)\n",
    ),
    "a name that was told to go is asked for together with others": (
        "mutex/force",
        "remove(found.drop)\n",
        "remove(found.drop)\nlocal left = call('EXISTS', NAME, FENCE)\n",
    ),
}  # fmt: skip

SPARED = {
    "a dead ticket goes first": ("mutex/acquire", "  pump(found, token)\n", "  remove(found.drop)\n"),
    "the dead go first": (
        "permits/acquire",
        "local stale = settle(state, found, token)\n",
        "go_on()\nlocal stale = settle(state, found, token)\n",
    ),
}


def judge(name: str, found: Findings) -> None:
    assert not found.wrong, "nothing stops it after its first write"
    if name in REFUSED:
        assert found.refused
        assert not found.fills
    elif name not in EITHER:
        assert not found.refused


def test_nothing_stops_a_script_after_its_first_write_and_only_what_is_new_needs_memory() -> None:
    for name in FILES.keys() - CALLERS:
        with case(name):
            judge(name, examine(FILES[name]))


def test_a_script_of_a_name_that_is_a_hash_keeps_the_same_order() -> None:
    for name in REDISSON:
        with case(name):
            judge(name, examine(FILES[name], variant="redisson"))


def test_a_name_that_such_a_script_deletes_too_early_is_found() -> None:
    pump = "function pump(found, own)\n"
    assert pump in assembled(FILES["key/leave"], variant="redisson")
    early = f"{pump}  call('DEL', NAME)\n"
    assert examine(FILES["key/leave"], lambda source: source.replace(pump, early), "redisson").wrong


def test_the_lists_name_scripts() -> None:
    assert len(FILES) > 50
    assert CALLERS | REFUSED | EITHER.keys() <= FILES.keys()
    for name in CALLERS | EITHER.keys():
        found = examine(FILES[name])
        assert found.wrong or (found.refused and found.fills), name


def test_a_planted_write_is_found() -> None:
    for planted, (name, old, new) in PLANTED.items():
        with case(planted):
            assert old in assembled(FILES[name])
            assert examine(FILES[name], lambda text: text.replace(old, new)).wrong


def test_a_planted_way_past_the_memory_limit_is_found() -> None:
    for planted, (name, old, new) in SPARED.items():
        with case(planted):
            assert old in assembled(FILES[name])
            assert examine(FILES[name], lambda text: text.replace(old, new)).fills


def test_every_folder_of_scripts_is_looked_at() -> None:
    looked_at = {file for file in HOME.rglob("*.lua") if not file.name.startswith("_")}
    assert {file for file in looked_at if "testing" not in file.parts} == set(FILES.values())
