"""What follows from the facts of a server: each finding, its severity, and that the unknown is no fault."""

from __future__ import annotations

from typing import Any

from pawlock.model import Severity
from pawlock.preflight.server import Facts, check_server, facts_of_info, fields_of
from tests.support.refusal import case

GOOD: dict[str, Any] = {
    "product": "valkey", "version": "9.1.2", "role": "master", "mode": "standalone", "maxmemory": 0,
    "policy": "noeviction", "aof": True, "fsync": "always", "replicas": 0, "lag": None,
    "clock_offset": 0.001, "clock_rate": 0.0, "round_trips": [0.0001] * 100, "scripts": True, "listens": True,
    "denied": [],
}  # fmt: skip

CASES: list[tuple[dict[str, Any], str, Severity, str]] = [
    ({"product": "redis", "version": "5.0.14"}, "version", Severity.ERROR, "lacks"),
    ({"product": "redis", "version": "6.2.14"}, "version", Severity.OK, "6.2.14"),
    ({"role": "slave"}, "role", Severity.ERROR, "replica"),
    ({"policy": "volatile-lru", "maxmemory": 1}, "eviction", Severity.ERROR, "volatile-lru"),
    ({"policy": "allkeys-lfu", "maxmemory": 1}, "eviction", Severity.ERROR, "allkeys-lfu"),
    ({"policy": "volatile-ttl", "maxmemory": 0}, "eviction", Severity.NOTE, "maxmemory is 0"),
    ({"aof": False}, "persistence", Severity.WARNING, "loses every lock"),
    ({"fsync": "everysec"}, "persistence", Severity.NOTE, "everysec"),
    ({"fsync": None}, "persistence", Severity.OK, "does not disclose"),
    ({"replicas": 2, "lag": 0.0}, "replication", Severity.NOTE, "2 replicas"),
    ({"replicas": 1, "lag": 30.0}, "replication", Severity.WARNING, "30 s behind"),
    ({"clock_rate": 0.02}, "clock", Severity.ERROR, "+2.0%"),
    ({"clock_rate": -0.05}, "clock", Severity.ERROR, "-5.0%"),
    ({"clock_offset": -90.0}, "clock", Severity.NOTE, "behind"),
    ({"round_trips": [0.001] * 90 + [5.0] * 10}, "latency", Severity.WARNING, "late"),
    ({"scripts": False}, "scripts", Severity.ERROR, "do not run"),
    ({"listens": False}, "wake-ups", Severity.WARNING, "every 50 to 100 ms"),
    ({"denied": ["HSET", "PUBLISH"]}, "rights", Severity.ERROR, "HSET, PUBLISH"),
    ({"denied": ["PUBLISH", "SUBSCRIBE"]}, "rights", Severity.OK, "except for wake-ups"),
    ({"mode": "cluster", "wanted": "standalone"}, "role", Severity.ERROR, "a node of a cluster"),
    ({"mode": "standalone", "wanted": "cluster"}, "role", Severity.ERROR, "not part of a cluster"),
    ({"mode": "cluster", "wanted": "cluster", "slots": "fail"}, "role", Severity.ERROR, "state is fail"),
    ({"mode": "cluster", "wanted": "cluster", "role": "slave"}, "role", Severity.NOTE, "finds the masters"),
    ({"mode": "cluster", "wanted": "cluster", "role": "slave", "slots": "fail"}, "role", Severity.ERROR, ""),
    ({"mode": "cluster", "wanted": "standalone", "role": "slave"}, "role", Severity.ERROR, "a node of"),
    ({"denied": ["INFO"]}, "rights", Severity.UNKNOWN, "INFO"),
]


def test_each_finding() -> None:
    for changed, check, severity, word in CASES:
        with case(changed, check, severity, word):
            found = {finding.check: finding for finding in check_server(Facts(**{**GOOD, **changed}))}
            assert found[check].severity is severity
            assert word in found[check].text
            if severity in (Severity.WARNING, Severity.ERROR):
                assert found[check].promise
                assert found[check].fix
            assert {f.severity for name, f in found.items() if name != check} == {Severity.OK}


def test_how_far_a_clock_is_away_is_readable() -> None:
    cases: list[tuple[float, str]] = [
        (1.47e-05, "within 1 ms of this machine"),
        (-0.0004, "within 1 ms of this machine"),
        (0.0123, "12 ms ahead of this machine"),
        (-1.25, "1.2 s behind this machine"),
        (2_500_000.0, "2,500,000.0 s ahead of this machine"),
    ]
    for offset, text in cases:
        with case(offset, text):
            found = {
                finding.check: finding for finding in check_server(Facts(**{**GOOD, "clock_offset": offset}))
            }
            assert text in found["clock"].text


def test_a_server_that_tells_nothing_is_unknown_and_never_at_fault() -> None:
    assert {finding.severity for finding in check_server(Facts())} == {Severity.UNKNOWN}


def test_what_info_says() -> None:
    text = (
        "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:standalone\r\n"
        "# Memory\r\nmaxmemory:100\r\nmaxmemory_policy:volatile-lru\r\n# Persistence\r\naof_enabled:1\r\n"
        "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n"
        "slave0:ip=1.2.3.4,port=1,state=online,offset=1,lag=0\r\n"
        "slave1:ip=1.2.3.4,port=2,state=online,offset=1,lag=12\r\n"
    )
    facts = facts_of_info(fields_of(text))
    assert (facts.product, facts.version, facts.role) == ("valkey", "9.1.2", "master")
    assert (facts.maxmemory, facts.policy, facts.aof) == (100, "volatile-lru", True)
    assert (facts.replicas, facts.lag) == (2, 12.0)
