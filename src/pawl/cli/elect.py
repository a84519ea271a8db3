"""`pawl elect`: run a command while leading, and stand again when the lead is lost."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pawl.cli._common import SETTINGS, seconds, server_options
from pawl.cli.exits import Exit, say, speak_json
from pawl.cli.run import _cannot_run, _Run, _speak, tell_end

if TYPE_CHECKING:
    from pawl.cli._wrapper import Ended

__all__ = ["elect"]

_USAGE = "write: pawl elect [OPTIONS] NAME -- COMMAND [ARG…]"
_PAUSE = 0.2
_OUTAGE_PAUSE = 2.0
_EXAMPLES = """\b
Examples:
  pawl elect scheduler -- ./scheduler            on three hosts: one of them runs it
  pawl elect --ttl 5 scheduler -- ./scheduler    another leads 5 seconds after a host died, at most
  pawl elect -w 60 scheduler -- ./scheduler      stand for a minute at most (exit 75)

\b
Exit codes:
  0-125  the command's own     75  another led for all of -w
  126    it is not executable  69  the server cannot be asked, or refuses
  127    it was not found      64  wrong usage
  128+n  signal n ended it

When the command ends by itself, the lead is given up, and its exit code is ours. When the lead is lost, the
command's process group gets TERM, after --kill-after KILL; then `pawl elect` stands for election again, also while
the server is away, until a signal ends it. Only at the first time is a server that cannot be asked an error.

The command sees PAWL_LOCK_NAME, PAWL_FENCE and PAWL_TTL_MS; PAWL_FENCE rises from one leader to the next.
`pawl show NAME` tells who leads.
"""


class _Elect(_Run):
    usage = _USAGE


@click.command(cls=_Elect, epilog=_EXAMPLES, options_metavar="[OPTIONS]", context_settings=SETTINGS)
@click.argument("name", metavar="NAME")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.option("--identity", metavar="TEXT", help="What the leader is called (host, process and thread).")
@click.option("-w", "--wait", type=float, metavar="S", callback=seconds, help="Stand for at most S seconds.")
@click.option(
    "--ttl", type=float, metavar="S", callback=seconds, help="How long nobody leads after a crash (30)."
)
@click.option(
    "--kill-after",
    type=float,
    metavar="S",
    callback=seconds,
    help="Seconds between TERM and KILL when the lead is lost, a third of the ttl at most (a sixth of it, 5 at most).",
)
@server_options
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Say what happens.")
@click.option(
    "--json", "as_json", is_flag=True, help="Say what happens as JSON, an object a line, on standard error."
)
@click.option("--again", is_flag=True, hidden=True)
@click.pass_context
def elect(ctx: click.Context, /, **given: Any) -> int:
    """Stand for election NAME, and run a command while leading.

    Several hosts do the same; they lead in the order in which they came. Signals are passed to the command; while
    another leads, they end the wait.
    """
    if os.name != "posix":
        say("`pawl elect` needs process groups and signals, which this system does not have", colour="red")
        return Exit.UNAVAILABLE
    if given["as_json"]:
        speak_json()
    child: list[str] = ctx.obj
    if not child:
        raise click.UsageError(f"no command; {_USAGE}", ctx)
    trouble = _cannot_run(child[0])
    if trouble:
        return trouble
    _speak(verbose=given["verbose"])
    found = {number: signal.getsignal(number) for number in signal.Signals}
    ended = _lead(child, given)
    # Before the first lead it is more likely a wrong address than an outage.
    outage = given["again"] and not ended.held and ended.code == Exit.UNAVAILABLE
    if not (ended.lost or outage):
        if given["as_json"]:
            tell_end(given["name"], ended.code)
        return ended.code
    _stand_again(found, _OUTAGE_PAUSE if outage else _PAUSE)
    return Exit.SOFTWARE  # never reached: another program is in our place


def _lead(child: list[str], given: Mapping[str, Any]) -> Ended:
    from pawl.cli._keeper import Wish
    from pawl.cli._wrapper import Job, mind

    keep = ("ttl", "identity")
    wish = Wish(
        name=given["name"],
        url=given["url"],
        defaults={} if given["namespace"] is None else {"namespace": given["namespace"]},
        options={key: given[key] for key in keep if given[key] is not None},
        timeout=given["wait"],
        election=True,
    )
    job = Job(
        wish=wish,
        command=child,
        kill_after=given["kill_after"],
        quiet=given["quiet"],
        verbose=given["verbose"] or given["as_json"],
    )
    return mind(job)


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
