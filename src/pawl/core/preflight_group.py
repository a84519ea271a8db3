"""What is to be said of several servers together: independent masters, or Sentinels and their master. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pawl.core.preflight import APART, Facts, Finding, Severity
from pawl.core.quorum import majority

__all__ = ["judge_masters", "judge_sentinels"]


def judge_masters(shown: Sequence[str], facts: Sequence[Facts | None], poor: str | None) -> list[Finding]:
    """What follows for independent masters (Redlock).

    Args:
        shown: Their addresses.
        facts: What is known of each; None: it could not be asked.
        poor: What is wrong with their number, or None.
    """
    return [_number(len(shown), poor), _alone(shown, facts), _voters(shown, facts), _clocks(shown, facts)]


def _number(count: int, poor: str | None) -> Finding:
    if poor is None:
        return Finding("number", Severity.OK, f"{count} masters")
    return Finding("number", Severity.WARNING, poor, "survival of a minority's loss", "use three or five")


def _alone(shown: Sequence[str], facts: Sequence[Facts | None]) -> Finding:
    """Whether each is a server of its own."""
    ids = [fact.run_id if fact is not None else None for fact in facts]
    twice = [
        (shown[first], shown[second])
        for first in range(len(ids))
        for second in range(first + 1, len(ids))
        if ids[first] is not None and ids[first] == ids[second]
    ]
    if twice:
        listed = "; ".join(" and ".join(pair) for pair in twice)
        text = f"one server under two addresses: {listed}. The second has no vote"
        cure = "name each master once; several databases of one server are one master"
        return Finding("independence", Severity.ERROR, text, "survival of a minority's loss", cure)
    if any(fact is not None and fact.run_id is None for fact in facts):
        text = (
            "not every server tells its run id: one that restarted, or is named twice, would not be noticed"
        )
        return Finding("independence", Severity.UNKNOWN, text)
    return Finding("independence", Severity.OK, "each is a server of its own")


def _voters(shown: Sequence[str], facts: Sequence[Facts | None]) -> Finding:
    ids: set[str] = set()
    votes = 0
    for fact in facts:
        if fact is None or fact.role not in (None, "master", "primary") or fact.run_id in ids:
            continue
        ids |= {fact.run_id} if fact.run_id else set()
        votes += 1
    needed = majority(len(shown))
    text = f"{votes} of {len(shown)} masters have a vote; {needed} are a majority"
    if votes == len(shown):
        return Finding("majority", Severity.OK, text)
    severity = Severity.WARNING if votes >= needed else Severity.ERROR
    return Finding("majority", severity, text, "explicit failure", "see what was found at the others")


def _clocks(shown: Sequence[str], facts: Sequence[Facts | None]) -> Finding:
    known = [
        (fact.clock_offset, where)
        for fact, where in zip(facts, shown, strict=True)
        if fact is not None and fact.clock_offset is not None
    ]
    if len(known) < 2:
        return Finding("clocks", Severity.UNKNOWN, "too few servers tell their time to compare them")
    (least, behind), (most, ahead) = min(known), max(known)
    text = f"their clocks are {most - least:.3g} s apart at most"
    if most - least > APART:
        text += f" ({ahead} is ahead of {behind}): no lease depends on that, but a clock that is stepped does harm"
        return Finding("clocks", Severity.NOTE, text, "validity, fences", "run NTP on all servers")
    return Finding("clocks", Severity.OK, text)


def judge_sentinels(service: str, told: Sequence[tuple[str, str | None, str]]) -> list[Finding]:
    """What follows for Sentinels.

    Args:
        service: What they are to call the master.
        told: Of each its address, the master that it told (None: none), and why it told none.
    """
    masters = {master for _, master, _ in told if master is not None}
    silent = [f"{where}: {why}" for where, master, why in told if master is None]
    if not masters:
        text = f"no Sentinel tells a master named {service!r} ({'; '.join(silent)})"
        cure = "check the addresses, the login at the Sentinels, and the name: SENTINEL MASTERS lists them"
        return [Finding("sentinels", Severity.ERROR, text, "explicit failure", cure)]
    if len(masters) > 1:
        text = f"they do not agree on the master: {', '.join(sorted(masters))}"
        cure = "a failover goes on, or some of them are cut off; look again"
        return [Finding("sentinels", Severity.WARNING, text, "explicit failure", cure)]
    text = f"{len(told) - len(silent)} of {len(told)} Sentinels tell of the master, {masters.pop()}"
    if not silent:
        return [Finding("sentinels", Severity.OK, text)]
    severity = Severity.WARNING if len(silent) < majority(len(told)) else Severity.ERROR
    cure = "a failover needs a majority of them"
    return [
        Finding(
            "sentinels", severity, f"{text}; not {'; '.join(silent)}", "survival of the master's loss", cure
        )
    ]
