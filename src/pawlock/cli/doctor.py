"""`pawlock doctor`: check a server for settings that break the guarantees of locks."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings

import click

import pawlock
from pawlock._doctor import acl_rules
from pawlock.cli._common import as_seconds
from pawlock.cli.exits import Exit
from pawlock.model import Finding, ServerReport, Severity

__all__ = ["doctor"]

_EXAMPLES = """\b
Examples:
  pawlock doctor                             PAWLOCK_URL, else the embedded server
  pawlock doctor redis://localhost:6379/0
  pawlock doctor redlock://a,b,c             each master, and the masters together
  pawlock doctor --json redis://db | jq '.[].findings[] | select(.severity == "error")'
  pawlock doctor --namespace billing         check the permissions for that namespace
  pawlock doctor --acl >> users.acl          ACL rules with the permissions that pawlock needs, and no more
  pawlock doctor --acl --namespace billing   the same for another namespace

\b
Exit codes:
  0   no warning and no error   2   an error: a guarantee does not hold on this server
  1   a warning                 64  wrong usage

Settings that the server does not disclose (managed servers often forbid INFO, CONFIG and ACL) are reported as
"unknown", never as a fault.
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
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with one object per server.")
@click.option(
    "--ttl", callback=as_seconds(), default="30s", metavar="TIME", help="TTL of your leases (default: 30s)."
)
@click.option(
    "--namespace", metavar="TEXT", help="Key prefix of the locks (default: PAWLOCK_NAMESPACE, else pawlock)."
)
@click.option("--url", "named", metavar="URL", help="Same as URL.")
@click.option("--acl", is_flag=True, help="Print the ACL rules that pawlock needs, and exit.")
def doctor(
    *, url: str | None, as_json: bool, ttl: float, namespace: str | None, named: str | None, acl: bool
) -> int:
    """Check a server for settings that break the guarantees of locks, and suggest a fix.

    Checks version, role, eviction, persistence, replicas, clock, latency and permissions, and tries a lock. Takes about
    a second, to measure the clock, and changes nothing else.
    """
    if acl:
        click.echo(acl_rules(namespace), nl=False)
        return Exit.OK
    if url and named and url != named:
        raise click.UsageError("pass only one URL")
    with warnings.catch_warnings():
        # Of a poor number of masters, which a finding names.
        warnings.simplefilter("ignore", RuntimeWarning)
        client = pawlock.connect(url or named, namespace=namespace, ttl=ttl)
    with client:
        reports = client.check()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    else:
        for report in reports:
            _show(report)
    order = list(Severity)
    worst = max((report.worst for report in reports), key=order.index)
    return _CODES.get(worst, Exit.OK)


def _show(report: ServerReport) -> None:
    click.echo(report.server)
    for finding in report.findings:
        click.echo(f"  {_mark(finding.severity)} {finding.check:<12} {finding.text}")
        if finding.severity in (Severity.NOTE, Severity.WARNING, Severity.ERROR):
            _explain(finding)


def _explain(finding: Finding) -> None:
    if finding.promise:
        click.echo(f"    {'':<12} affects: {finding.promise}")
    if finding.fix:
        click.echo(f"    {'':<12} fix: {finding.fix}")


def _mark(severity: Severity) -> str:
    mark, colour = _MARKS[severity]
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return mark
    return f"\033[{colour}m{mark}\033[0m"
