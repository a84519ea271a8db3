"""The judge of mixed counters finds what is wrong; and the line protocol, with pawlock as its own driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interop import wake
from interop.counting import chosen, count
from interop.judge import Part, judge
from interop.kinds import KINDS, ROOT, Kind, common_key
from interop.line import Driver, DriverFailed
from tests.support.servers import Server


def held(at: float, value: int, found: str = "", **more: float) -> dict[str, Any]:
    return {"event": "held", "t0": at - 0.5, "t": at, "found": found, "value": value, **more}


def left(at: float) -> dict[str, Any]:
    return {"event": "left", "t0": at, "t": at + 0.1, "found": "1", "me": "1"}


def part(name: str, *events: dict[str, Any], kind: str = "redsync", **more: float) -> Part:
    end, killed = more.get("end", 10.0), bool(more.get("killed"))
    pid, queues = sum(map(ord, name)), kind == "pawlock"
    return Part(name, kind, pid, events, 0.0, end, killed=killed, queues=queues)


def test_turns_are_fine() -> None:
    verdict = judge([part("a", held(1, 0), left(2)), part("b", held(3, 1), left(4))], "x", 5, 2)
    assert verdict.safe
    assert verdict.shares == {"a": 0.5, "b": 0.5}


def test_two_at_once_are_found() -> None:
    verdict = judge([part("a", held(1, 0), left(3)), part("b", held(2, 0, "97"), left(4))], "x", 5, 1)
    assert (verdict.overlaps, verdict.lost_updates, len(verdict.violations)) == (1, 1, 1)
    assert not verdict.safe
    assert verdict.meetings == [
        "b entered at 2.000 s and found a, which had entered 1.000 s before and left 1.100 s after"
    ]


def test_an_expired_lease_is_none() -> None:
    verdict = judge([part("a", held(1, 0), left(3)), part("b", held(2, 1), left(4))], "x", 1.2, 2)
    assert not verdict.violations
    verdict = judge([part("a", held(1, 0, until=9.0), left(3)), part("b", held(2, 1), left(4))], "x", 1.2, 2)
    assert len(verdict.violations) == 1


def test_a_fence_that_falls_is_found() -> None:
    events = [held(1, 0, fence=7), left(2), held(3, 1, fence=6), left(4)]
    assert len(judge([part("a", *events, kind="pawlock")], "x", 5, 2).violations) == 1
    assert judge([part("a", *events)], "x", 5, 2).safe


def test_who_was_killed_after_its_hold_may_have_released() -> None:
    killed = part("a", held(1, 0), end=3.0, killed=True)
    after = part("b", held(2, 1), left(4))
    assert len(judge([killed, after], "x", 5, 2).violations) == 1
    killed.hold = 0.5
    assert not judge([killed, after], "x", 5, 2).violations
    killed.hold = 1.5
    assert len(judge([killed, after], "x", 5, 2).violations) == 1


def test_who_was_killed_leaves_its_mark_and_its_value() -> None:
    dead = part("a", held(1, 0), end=1.5, killed=True)
    after = part("b", held(3, 0, "97"), left(4))
    assert judge([dead, after], "x", 5, 1).safe
    # One that was inside before the other was dead, and a value that was read twice by those who lived.
    early = part("b", held(1.2, 0, "97"), left(1.4))
    assert judge([dead, early], "x", 5, 1).overlaps == 1
    assert judge([dead, after, part("c", held(5, 0), left(6))], "x", 5, 1).lost_updates == 1


def test_a_name_that_nobody_has_after_a_death_is_found() -> None:
    dead = part("a", held(1, 0), end=1.5, killed=True)
    late = part("b", held(9, 0) | {"t0": 1.0}, left(9.1))
    assert not judge([dead, late], "x", 2, 1, slack=6).violations
    assert len(judge([dead, late], "x", 2, 1, slack=2).violations) == 1


def test_the_longest_wait_counts_whoever_got_nothing() -> None:
    assert part("a").longest_wait == 10
    assert part("a", held(4, 0), left(5), held(6, 1), left(8)).longest_wait == 4
    assert part("a", held(1, 0), left(2)).longest_wait == pytest.approx(7.9)
    assert part("a", held(1, 0), {"event": "error", "t": 3.0, "error": "lost"}, end=4.0).longest_wait == 1


def test_what_starves_is_named() -> None:
    many = [event for i in range(200) for event in (held(i, i), left(i + 0.2))]
    verdict = judge([part("a", *many), part("b")], "x", 5, 200)
    assert (verdict.starved(), verdict.as_json()["starved"]) == (["b"], ["b"])


def test_a_bound_is_for_what_wakes_a_waiter() -> None:
    def late(name: str, theirs: float | None) -> bool:
        return wake.too_slow(
            KINDS[name], {wake.TO_PAWLOCK: {"p95_ms": 20.0}, wake.TO_THEM: {"p95_ms": theirs}}
        )

    assert (late("redsync", 300), late("redsync", 301), late("redisson", 51), late("pyredislock", None)) == (
        False,
        True,
        True,
        True,
    )
    assert wake.too_slow(KINDS["bsm"], {wake.TO_PAWLOCK: {"p95_ms": 20.1}, wake.TO_THEM: {"p95_ms": 1.0}})
    assert (KINDS["rueidis1"].least, KINDS["redsync"].least) == (0.03, 0.01)


@pytest.mark.parametrize("kind", ["pawlock", "pawlock-asyncio"])
def test_pawlock_behind_the_line_protocol(kind: str, valkey: Server) -> None:
    server = valkey
    with Driver(KINDS[kind], server.url) as one, Driver(KINDS["pawlock"], server.url) as other:
        assert one.ready().ask("try", "x", 5000)["ok"]
        assert not other.ready().ask("try", "x", 5000)["ok"]
        assert one.ask("state", "x")["state"] == "held"
        assert one.ask("extend", "x", 20_000)["ok"]
        other.send("lock", "x", 5000, -1)
        assert other.silent(0.1)
        left = one.ask("unlock", "x")
        assert other.reply()["t"] > left["t0"]
        server.command("DEL", "x")
        assert "error" in other.ask("unlock", "x")
    with pytest.raises(DriverFailed, match="ended"):
        one.reply()


def test_a_counter_of_two(valkey: Server) -> None:
    server = valkey
    server.command("FLUSHALL")
    verdict = count(server.url, [KINDS["pawlock"], KINDS["pawlock-asyncio"]], 0.3)
    assert verdict.safe
    assert min(len(part.grants) for part in verdict.parts) > 0
    assert server.command("GET", "counted") == b"%d" % sum(len(part.grants) for part in verdict.parts)


def test_a_client_of_ones_own(valkey: Server) -> None:
    """What a third party runs: its own command, beside pawlock."""
    own = f"own@mine:={' '.join(KINDS['pawlock'].command)}"
    try:
        kinds = chosen("pawlock,own", [own])
        assert common_key(kinds, "x") == "mine:x"
        assert count(valkey.url, kinds, 0.2).safe
    finally:
        KINDS.pop("own")
    for wrong in ("own", "=x"):
        with pytest.raises(SystemExit, match="NAME=COMMAND"):
            chosen("pawlock", [wrong])
    with pytest.raises(SystemExit, match="no such kind: own"):
        chosen("own")
    with pytest.raises(SystemExit, match="no key in common"):
        common_key([KINDS["spring"], KINDS["pyredislock"]], "x")


NO_LOCK = """
import sys
sys.path.insert(0, sys.argv[2])
from interop.drivers.python import driver

class Nothing(driver.Client):
    def get(self, name, ttl_ms, wait_ms):
        return object()

    def release(self, key):
        self.held.pop(key)

driver.KINDS["nothing"] = Nothing
sys.argv[2] = sys.argv[3]
driver.main()
"""


def test_a_client_that_locks_nothing_is_found_out(valkey: Server, tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(NO_LOCK)
    nothing = Kind("nothing", "", (sys.executable, str(tmp_path / "nothing.py"), "nothing", str(ROOT)))
    verdict = count(valkey.url, [KINDS["pawlock"], nothing], 0.3)
    assert verdict.overlaps
    assert verdict.lost_updates
    assert "exclusion" in {violation.check for violation in verdict.violations}


def test_kills_of_pawlock(valkey: Server) -> None:
    command = (
        sys.executable,
        "-m",
        "interop.kills",
        "--seconds",
        "6",
        "--mix",
        "pawlock,pawlock",
        "--url",
        valkey.url,
    )
    done = subprocess.run([*command, "--ttl", "1"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"pawlock": ' in done.stdout
