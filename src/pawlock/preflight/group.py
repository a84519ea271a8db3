"""Checks of several servers together: independent masters, or Sentinels and their master. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pawlock.model import Finding, Severity
from pawlock.preflight.server import APART, Facts

__all__ = ["check_masters", "check_sentinels"]


def check_masters(
    shown: Sequence[str], facts: Sequence[Facts | None], count_warning: str | None
) -> list[Finding]:
    """The findings for independent masters (Redlock).

    Args:
        shown: Their addresses.
        facts: What is known of each; None: it could not be reached.
        count_warning: What is wrong with their number, or None.
    """
    return [
        _number(len(shown), count_warning),
        _alone(shown, facts),
        _voters(shown, facts),
        _clocks(shown, facts),
    ]


def _number(count: int, warning: str | None) -> Finding:
    if warning is None:
        return Finding("number", Severity.OK, f"{count} masters")
    return Finding(
        "number", Severity.WARNING, warning, "availability when a minority fails", "use three or five masters"
    )


def _alone(shown: Sequence[str], facts: Sequence[Facts | None]) -> Finding:
    """Whether each is a server of its own."""
    ids = [fact.run_id if fact is not None else None for fact in facts]
    duplicates = [
        (shown[first], shown[second])
        for first in range(len(ids))
        for second in range(first + 1, len(ids))
        if ids[first] is not None and ids[first] == ids[second]
    ]
    if duplicates:
        listed = "; ".join(" and ".join(pair) for pair in duplicates)
        text = f"one server under two addresses: {listed}. The second has no vote"
        fix = "list each master once; several databases of one server are one master"
        return Finding("independence", Severity.ERROR, text, "availability when a minority fails", fix)
    if any(fact is not None and fact.run_id is None for fact in facts):
        text = (
            "not every server discloses its run id: a restart, or a server listed twice, would not be noticed"
        )
        return Finding("independence", Severity.UNKNOWN, text)
    return Finding("independence", Severity.OK, "each is a separate server")


def _voters(shown: Sequence[str], facts: Sequence[Facts | None]) -> Finding:
    ids: set[str] = set()
    votes = 0
    for fact in facts:
        if fact is None or fact.role not in (None, "master", "primary") or fact.run_id in ids:
            continue
        ids |= {fact.run_id} if fact.run_id else set()
        votes += 1
    needed = len(shown) // 2 + 1
    text = f"{votes} of {len(shown)} masters have a vote; {needed} are needed"
    if votes == len(shown):
        return Finding("majority", Severity.OK, text)
    severity = Severity.WARNING if votes >= needed else Severity.ERROR
    return Finding("majority", severity, text, "availability", "see the findings of the other masters")


def _clocks(shown: Sequence[str], facts: Sequence[Facts | None]) -> Finding:
    known = [
        (fact.clock_offset, where)
        for fact, where in zip(facts, shown, strict=True)
        if fact is not None and fact.clock_offset is not None
    ]
    if len(known) < 2:
        return Finding("clocks", Severity.UNKNOWN, "too few servers disclose their time to compare them")
    (least, behind), (most, ahead) = min(known), max(known)
    text = f"their clocks differ by at most {most - least:.3g} s"
    if most - least > APART:
        text += (
            f" ({ahead} is ahead of {behind}): leases do not depend on it, but a clock step would be harmful"
        )
        return Finding("clocks", Severity.NOTE, text, "validity, fencing tokens", "run NTP on all servers")
    return Finding("clocks", Severity.OK, text)


def check_sentinels(service: str, answer: Sequence[tuple[str, str | None, str]]) -> list[Finding]:
    """The findings for Sentinels.

    Args:
        service: The name that they use for the master.
        answer: For each its address, the master that it reported (None: none), and why not.
    """
    masters = {master for _, master, _ in answer if master is not None}
    silent = [f"{where}: {why}" for where, master, why in answer if master is None]
    if not masters:
        text = f"no Sentinel knows a master named {service!r} ({'; '.join(silent)})"
        fix = "check the addresses, the Sentinels' credentials, and the name (SENTINEL MASTERS lists them)"
        return [Finding("sentinels", Severity.ERROR, text, "availability", fix)]
    if len(masters) > 1:
        text = f"they do not agree on the master: {', '.join(sorted(masters))}"
        fix = "a failover is in progress, or some Sentinels are partitioned; run the check again"
        return [Finding("sentinels", Severity.WARNING, text, "availability", fix)]
    text = f"{len(answer) - len(silent)} of {len(answer)} Sentinels agree on the master, {masters.pop()}"
    if not silent:
        return [Finding("sentinels", Severity.OK, text)]
    severity = Severity.WARNING if len(silent) < len(answer) // 2 + 1 else Severity.ERROR
    fix = "restore the Sentinels: a failover needs a majority"
    return [
        Finding(
            "sentinels", severity, f"{text}; not {'; '.join(silent)}", "failover when the master fails", fix
        )
    ]
