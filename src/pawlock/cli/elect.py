"""`pawlock elect`: run a command while leading, and stand again when the lead is lost."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli._common import SETTINGS, seconds, server_options
from pawlock.cli.exits import Exit, say, use_json
from pawlock.cli.run import _cannot_run, _Run, _set_up_logging, report_end

if TYPE_CHECKING:
    from pawlock.cli._wrapper import Ended

__all__ = ["elect"]

_USAGE = "usage: pawlock elect [OPTIONS] NAME -- COMMAND [ARG…]"
_PAUSE = 0.2
_OUTAGE_PAUSE = 2.0
_EXAMPLES = """\b
Examples:
  pawlock elect scheduler -- ./scheduler            start it on three hosts: one of them runs it
  pawlock elect --ttl 5 scheduler -- ./scheduler    a new leader at most 5 s after a host dies
  pawlock elect -w 60 scheduler -- ./scheduler      give up after a minute (exit 75)

\b
Exit codes:
  0-125  exit code of COMMAND       75  not elected within -w
  126    COMMAND is not executable  69  the server is unreachable or refused
  127    COMMAND was not found      64  wrong usage
  128+n  signal n ended COMMAND

When COMMAND exits, `pawlock elect` resigns and exits with the same code. When leadership is lost, the process group of
COMMAND gets SIGTERM, then SIGKILL after --kill-after seconds; `pawlock elect` then stands for election again, even while
the server is unreachable, until a signal ends it. An unreachable server is an error only at the first attempt.

COMMAND gets PAWLOCK_LOCK_NAME, PAWLOCK_FENCE and PAWLOCK_TTL_MS in its environment. PAWLOCK_FENCE is the fencing token, which
increases with every new leader. `pawlock show NAME` shows the current leader.
"""


class _Elect(_Run):
    usage = _USAGE


@click.command(cls=_Elect, epilog=_EXAMPLES, options_metavar="[OPTIONS]", context_settings=SETTINGS)
@click.argument("name", metavar="NAME")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.option(
    "--identity", metavar="TEXT", help="Name of this candidate (default: host, process and thread)."
)
@click.option(
    "-w",
    "--wait",
    type=float,
    metavar="S",
    callback=seconds,
    help="Give up after S seconds without being elected.",
)
@click.option(
    "--ttl",
    type=float,
    metavar="S",
    callback=seconds,
    help="Lease TTL in seconds: how long after a crash a new leader is elected (default: 30).",
)
@click.option(
    "--kill-after",
    type=float,
    metavar="S",
    callback=seconds,
    help="Seconds between SIGTERM and SIGKILL, at most a third of the TTL (default: a sixth of the TTL, at most 5).",
)
@server_options
@click.option("-q", "--quiet", is_flag=True, help="Only print errors.")
@click.option("-v", "--verbose", is_flag=True, help="Print what happens.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print what happens to standard error as JSON, one object per line.",
)
@click.option("--again", is_flag=True, hidden=True)
@click.pass_context
def elect(ctx: click.Context, /, **given: Any) -> int:
    """Stand for election NAME, and run a command while this host is the leader.

    Run the same command on several hosts; they become leader in the order in which they asked. Signals are passed on to
    the command; before this host is elected, they end the wait.
    """
    if os.name != "posix":
        say("`pawlock elect` needs POSIX process groups and signals: not available here", colour="red")
        return Exit.UNAVAILABLE
    if given["as_json"]:
        use_json()
    child: list[str] = ctx.obj
    if not child:
        raise click.UsageError(f"no command given; {_USAGE}", ctx)
    exit_code = _cannot_run(child[0])
    if exit_code:
        return exit_code
    _set_up_logging(verbose=given["verbose"])
    found = {number: signal.getsignal(number) for number in signal.Signals}
    ended = _lead(child, given)
    # Before the first lead it is more likely a wrong address than an outage.
    outage = given["again"] and not ended.held and ended.code == Exit.UNAVAILABLE
    if not (ended.lost or outage):
        if given["as_json"]:
            report_end(given["name"], ended.code)
        return ended.code
    _stand_again(found, _OUTAGE_PAUSE if outage else _PAUSE)
    return Exit.SOFTWARE  # never reached: another program is in our place


def _lead(child: list[str], given: Mapping[str, Any]) -> Ended:
    from pawlock.cli._keeper import LockRequest
    from pawlock.cli._wrapper import Job, supervise

    keep = ("ttl", "identity")
    request = LockRequest(
        name=given["name"],
        url=given["url"],
        defaults={} if given["namespace"] is None else {"namespace": given["namespace"]},
        options={key: given[key] for key in keep if given[key] is not None},
        timeout=given["wait"],
        kind="election",
    )
    job = Job(
        request=request,
        command=child,
        kill_after=given["kill_after"],
        quiet=given["quiet"],
        verbose=given["verbose"] or given["as_json"],
    )
    return supervise(job)


def _stand_again(found: Mapping[signal.Signals, Any], pause: float) -> None:
    """Begin anew in this process: threads and connections of the lost lead go, the process id stays."""
    signal.set_wakeup_fd(-1)
    for number, action in found.items():
        if action is not None and action is not signal.getsignal(number):
            signal.signal(number, action)
    try:
        # Not all candidates at one instant.
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # no secret
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    interpreter = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    rest = sys.argv[3:] if sys.argv[2] == "--again" else sys.argv[2:]
    os.execv(sys.executable, [sys.executable, *interpreter, "elect", "--again", *rest])  # noqa: S606  # itself
