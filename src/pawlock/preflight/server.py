"""Server settings that would break a guarantee, and how to fix them. Pure: facts in, findings out.

A fact that could not be learned (managed services forbid ``INFO`` or ``CONFIG``) is None, and makes a finding that says
so; it is never counted as a fault.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pawlock.model import Finding, Severity

__all__ = ["APART", "Facts", "check_server", "facts_of_info", "fields_of", "number_of"]

log: logging.Logger = logging.getLogger("pawlock.preflight")

_OLDEST = (6, 2)
_PATIENCE = 0.5
_RATE = 0.01
_SLOW_PART = 0.05
_LAG = 10.0
APART = 1.0
"""Seconds of difference between two wall clocks that are worth reporting."""

_OPTIONAL = frozenset({"SUBSCRIBE", "PUBLISH", "INFO"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of one server. None: it does not disclose it.

    Attributes:
        product: ``"redis"`` or ``"valkey"``.
        version: As it says.
        run_id: Its run id, new at each start.
        role: ``"master"`` or ``"slave"``.
        mode: ``"standalone"``, ``"cluster"`` or ``"sentinel"``.
        embedded: Whether pawlock started it.
        wanted: The mode that the address stands for, in the same words.
        slots: What a node of a cluster says of the cluster's state.
        maxmemory: Bytes; 0 is no limit.
        policy: What it does when memory is full.
        aof: Whether it appends every write to a file.
        fsync: When that file is flushed.
        replicas: How many replicas are connected.
        lag: Seconds that the slowest of them is behind.
        clock_offset: Its wall clock minus ours, in seconds.
        clock_rate: How much faster its clock runs than our boot clock, as a part of 1.
        round_trips: Measured round trips, in seconds.
        scripts: Whether scripts run.
        listens: Whether this user may subscribe and publish.
        channels: The prefix of the wake-up channels.
        denied: Commands that pawlock needs and this user may not use.
    """

    product: str | None = None
    version: str | None = None
    run_id: str | None = None
    role: str | None = None
    mode: str | None = None
    embedded: bool = False
    wanted: str | None = None
    slots: str | None = None
    maxmemory: int | None = None
    policy: str | None = None
    aof: bool | None = None
    fsync: str | None = None
    replicas: int | None = None
    lag: float | None = None
    clock_offset: float | None = None
    clock_rate: float | None = None
    round_trips: Sequence[float] = ()
    scripts: bool | None = None
    listens: bool | None = None
    channels: str = "pawlock:wake:"
    denied: Sequence[str] | None = None


def fields_of(text: str) -> dict[str, str]:
    """The fields of an ``INFO`` text."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            fields[name] = value
    return fields


def facts_of_info(info: Mapping[str, str]) -> Facts:
    """What the fields of ``INFO`` say; None for a field that is not there."""
    lags = [
        float(found[1])
        for key, value in info.items()
        if re.fullmatch(r"slave\d+", key) and (found := re.search(r"\blag=(-?\d+)", value))
    ]
    return Facts(
        product=None if not info else "valkey" if info.get("server_name") == "valkey" else "redis",
        version=info.get("valkey_version", info.get("redis_version")),
        run_id=info.get("run_id"),
        role=info.get("role"),
        mode=info.get("server_mode", info.get("redis_mode")),
        maxmemory=number_of(info.get("maxmemory")),
        policy=info.get("maxmemory_policy"),
        aof=_flag(info.get("aof_enabled")),
        replicas=number_of(info.get("connected_slaves")),
        lag=max(lags) if lags else None,
    )


def number_of(text: str | None) -> int | None:
    """A whole number as a server writes it; None for anything else."""
    return int(text) if text is not None and text.isdigit() else None


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "1"


def check_server(facts: Facts, *, ttl: float = 30.0) -> list[Finding]:
    """The findings that follow from the facts, in the order in which a person would want to read them.

    Args:
        facts: What is known.
        ttl: The ttl that leases will have, in seconds: what is slow is measured against it.
    """
    checks = (
        _version,
        _role,
        _eviction,
        _persistence,
        _replicas,
        _clock,
        _latency,
        _scripts,
        _listening,
        _rights,
    )
    return [check(facts, ttl) for check in checks]


def _unknown(check: str, what: str) -> Finding:
    return Finding(check, Severity.UNKNOWN, f"the server does not disclose {what}")


def _version(facts: Facts, _: float) -> Finding:
    if facts.version is None:
        return _unknown("version", "its version")
    found = re.match(r"(\d+)\.(\d+)", facts.version)
    shown = f"{facts.product} {facts.version}"
    if found and facts.product == "redis" and (int(found[1]), int(found[2])) < _OLDEST:
        fix = "use Redis 6.2 or Valkey 8, or later"
        return Finding("version", Severity.ERROR, f"{shown} lacks commands that the scripts use", "all", fix)
    return Finding("version", Severity.OK, shown)


def _role(facts: Facts, _: float) -> Finding:
    if facts.role is None and facts.mode != "sentinel":
        return _unknown("role", "its role")
    if facts.mode in _SCHEMES and facts.wanted in _SCHEMES and facts.mode != facts.wanted:
        what, scheme = _SCHEMES[facts.mode]
        return Finding("role", Severity.ERROR, what, "availability", f"use {scheme}")
    if facts.role not in ("master", "primary"):
        if facts.mode == facts.wanted == "cluster" and facts.slots in (None, "ok"):
            return Finding(
                "role", Severity.NOTE, "a replica of a cluster: pawlock finds the masters through it"
            )
        fix = "use the master's address, or redis+sentinel:// to find the master"
        return Finding("role", Severity.ERROR, "a replica, which accepts no writes", "availability", fix)
    if facts.slots not in (None, "ok"):
        text = f"part of a cluster whose state is {facts.slots}: some slots have no master"
        return Finding(
            "role",
            Severity.ERROR,
            text,
            "availability",
            "check CLUSTER INFO and CLUSTER SLOTS, and restore the missing masters",
        )
    return Finding(
        "role", Severity.OK, "a master" + (", part of a cluster" if facts.mode == "cluster" else "")
    )


_SCHEMES = {
    "standalone": ("not part of a cluster", "redis://"),
    "cluster": ("a node of a cluster, which has only some of the locks", "redis+cluster://"),
    "sentinel": ("a Sentinel", "redis+sentinel://host,host,host/service"),
}


def _eviction(facts: Facts, _: float) -> Finding:
    if facts.policy is None:
        return _unknown("eviction", "its eviction policy")
    if facts.policy == "noeviction":
        return Finding("eviction", Severity.OK, "noeviction: locks are never evicted")
    text = f"maxmemory-policy is {facts.policy}: when memory is full, the server evicts locks that are held"
    fix = "CONFIG SET maxmemory-policy noeviction, or use a separate server for locks"
    if facts.maxmemory == 0:
        text += " (maxmemory is 0, so this cannot happen now)"
        return Finding("eviction", Severity.NOTE, text, "mutual exclusion", fix)
    return Finding("eviction", Severity.ERROR, text, "mutual exclusion", fix)


def _persistence(facts: Facts, _: float) -> Finding:
    if facts.aof is None:
        return _unknown("persistence", "whether it keeps its data across a restart")
    promise = "mutual exclusion across a restart"
    fix = "appendonly yes and appendfsync always; guard writes with the fencing token"
    if facts.embedded:
        text = "the embedded server keeps nothing on disk: a crash of it loses every lock"
        return Finding("persistence", Severity.NOTE, text, promise, "guard writes with the fencing token")
    if not facts.aof:
        text = "no append-only file: a crash loses every lock, and a second holder can be granted"
        return Finding("persistence", Severity.WARNING, text, promise, fix)
    if facts.fsync is None:
        return Finding(
            "persistence", Severity.OK, "an append-only file; the server does not disclose appendfsync"
        )
    if facts.fsync != "always":
        text = f"appendfsync is {facts.fsync}: a crash of the machine loses the last writes, including locks"
        return Finding("persistence", Severity.NOTE, text, promise, fix)
    return Finding("persistence", Severity.OK, "an append-only file, flushed at every write")


def _replicas(facts: Facts, _: float) -> Finding:
    if facts.replicas is None:
        return _unknown("replication", "its replicas")
    if facts.replicas == 0:
        return Finding("replication", Severity.OK, "no replicas")
    text = f"{facts.replicas} replicas"
    promise = "mutual exclusion across a failover"
    if facts.lag is not None and facts.lag >= _LAG:
        fix = "find out why the replica lags; with replicas= a grant waits for acknowledgements"
        return Finding("replication", Severity.WARNING, f"{text}, one {facts.lag:.0f} s behind", promise, fix)
    fix = "replicas=1 makes a grant wait for an acknowledgement; guard writes with the fencing token"
    text += ": replication is asynchronous, so a failover can lose the last grants"
    return Finding("replication", Severity.NOTE, text, promise, fix)


def _apart(offset: float) -> str:
    """How far a clock is from this machine's clock, in readable precision."""
    seconds = abs(offset)
    if seconds < 0.001:
        return "within 1 ms of this machine"
    length = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
    return f"{length} {'ahead of' if offset > 0 else 'behind'} this machine"


def _clock(facts: Facts, _: float) -> Finding:
    if facts.clock_offset is None:
        return _unknown("clock", "its time")
    if facts.clock_rate is not None and abs(facts.clock_rate) > _RATE:
        text = f"its clock runs {facts.clock_rate:+.1%} against this machine; leases assume clock rates within 1 %"
        fix = "fix the clock there or here (NTP that slews, no manual steps)"
        return Finding("clock", Severity.ERROR, text, "validity", fix)
    shown = _apart(facts.clock_offset)
    if abs(facts.clock_offset) > APART:
        text = (
            f"its wall clock is {shown}: leases do not depend on it, but fencing tokens after a failover do"
        )
        return Finding(
            "clock", Severity.NOTE, text, "fencing tokens across a failover", "run NTP on all servers"
        )
    return Finding("clock", Severity.OK, shown)


def _latency(facts: Facts, ttl: float) -> Finding:
    if not facts.round_trips:
        return _unknown("latency", "its latency")
    spans = sorted(facts.round_trips)
    p50, p99 = spans[len(spans) // 2], spans[min(len(spans) - 1, int(len(spans) * 0.99))]
    text = f"p50 {p50 * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms, worst {spans[-1] * 1000:.2f} ms"
    if p99 > ttl * _SLOW_PART:
        fix = "use a longer TTL, or a server that is closer"
        return Finding("latency", Severity.WARNING, f"{text}: renewals may be late", "validity", fix)
    return Finding("latency", Severity.OK, text)


def _scripts(facts: Facts, _: float) -> Finding:
    if facts.scripts is None:
        return _unknown("scripts", "whether it runs scripts")
    if not facts.scripts:
        fix = "allow EVAL and EVALSHA to this user"
        return Finding("scripts", Severity.ERROR, "scripts do not run", "all", fix)
    return Finding("scripts", Severity.OK, "scripts run")


def _listening(facts: Facts, _: float) -> Finding:
    if facts.listens is None:
        return _unknown("wake-ups", "whether it delivers pub/sub messages")
    if not facts.listens:
        text = "no SUBSCRIBE, PUBLISH or RESP3: each waiter polls every 50 to 100 ms, in no order"
        fix = f"allow SUBSCRIBE, PUBLISH and the channels {facts.channels}* to this user, and pass on HELLO 3"
        return Finding("wake-ups", Severity.WARNING, text, "no thundering herd", fix)
    return Finding("wake-ups", Severity.OK, "a release wakes the next waiter")


def _rights(facts: Facts, _: float) -> Finding:
    if facts.denied is None:
        return _unknown("rights", "the permissions of this user")
    if not set(facts.denied) <= _OPTIONAL:
        text = f"this user has no permission for {', '.join(facts.denied)}"
        return Finding(
            "rights", Severity.ERROR, text, "all", "apply the ACL rules that `pawlock doctor --acl` prints"
        )
    if "INFO" in facts.denied:
        text = "this user has all permissions that pawlock needs except INFO: its facts are unknown"
        return Finding("rights", Severity.UNKNOWN, text)
    if facts.denied:
        return Finding(
            "rights", Severity.OK, "this user has all permissions that pawlock needs, except for wake-ups"
        )
    return Finding("rights", Severity.OK, "this user has all permissions that pawlock needs")
