"""`pawl doctor`: look at a server for what would break a lock's promises."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import click

from pawl._doctor import Report, acl_rules, examine
from pawl.cli.exits import Exit
from pawl.core.options import check_ttl
from pawl.core.preflight import Finding, Severity

__all__ = ["doctor"]

_EXAMPLES = """\b
Examples:
  pawl doctor                                      the server that PAWL_URL names, or this machine's own
  pawl doctor redis://localhost:6379/0
  pawl doctor redlock://a,b,c                      each of several masters, and all of them together
  pawl doctor --json redis://db | jq '.[].findings[] | select(.severity == "error")'
  pawl doctor --namespace billing                  what the account of that namespace may do
  pawl doctor --acl >> users.acl                   the rules of a user that may do what pawl does, and no more
  pawl doctor --acl --namespace billing            the same for another namespace

\b
Exit codes:
  0   nothing worse than a note      2   an error: a promise does not hold there
  1   a warning                      64  wrong usage

What a server does not tell (managed ones often forbid INFO, CONFIG and ACL) is "unknown", never a fault.
"""
_MARKS = {
    Severity.OK: ("✓", "32"),
    Severity.UNKNOWN: ("?", "2"),
    Severity.NOTE: ("i", "36"),
    Severity.WARNING: ("!", "33"),
    Severity.ERROR: ("✗", "31"),
}
_CODES = {Severity.WARNING: 1, Severity.ERROR: 2}


@click.command(epilog=_EXAMPLES)
@click.argument("url", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, an object for each server.")
@click.option(
    "--ttl", type=float, default=30.0, show_default=True, help="The ttl of your leases, in seconds."
)
@click.option(
    "--namespace", metavar="TEXT", help="What the keys of the locks begin with (PAWL_NAMESPACE, else pawl)."
)
@click.option("--url", "named", metavar="URL", help="The same as URL.")
@click.option("--acl", is_flag=True, help="Print the ACL rules that pawl needs, and exit.")
def doctor(
    *, url: str | None, as_json: bool, ttl: float, namespace: str | None, named: str | None, acl: bool
) -> int:
    """Look at a server for what would break a lock's promises, and say what to do about it.

    Reads version, role, eviction, persistence, replicas, clock, latency and rights. It takes about a second, for
    the clock, and changes nothing.
    """
    if acl:
        click.echo(acl_rules(namespace), nl=False)
        return Exit.OK
    if url and named and url != named:
        raise click.UsageError("give one URL")
    reports = examine(url or named, ttl=check_ttl(ttl), namespace=namespace)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    else:
        for report in reports:
            _show(report)
    order = list(Severity)
    worst = max((report.worst for report in reports), key=order.index)
    return _CODES.get(worst, Exit.OK)


def _show(report: Report) -> None:
    click.echo(report.server)
    for finding in report.findings:
        click.echo(f"  {_mark(finding.severity)} {finding.check:<12} {finding.text}")
        if finding.severity in (Severity.NOTE, Severity.WARNING, Severity.ERROR):
            _explain(finding)


def _explain(finding: Finding) -> None:
    if finding.promise:
        click.echo(f"    {'':<12} touches: {finding.promise}")
    if finding.cure:
        click.echo(f"    {'':<12} cure: {finding.cure}")


def _mark(severity: Severity) -> str:
    mark, colour = _MARKS[severity]
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return mark
    return f"\033[{colour}m{mark}\033[0m"
