"""`pawlock once`: run a command once, and replay what it printed and its exit code."""

from __future__ import annotations

import math
import os
from typing import Any

import click

from pawlock.cli._common import SETTINGS, client_of, seconds, server_options
from pawlock.cli.exits import Exit, say, use_json
from pawlock.cli.run import _cannot_run, _Run, _set_up_logging, report_end

__all__ = ["once"]

_USAGE = "write: pawlock once [OPTIONS] KEY -- COMMAND [ARG…]"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_EXAMPLES = """\b
Examples:
  pawlock once migrate:v42 --keep 30d -- ./migrate.sh      on every pod: one runs it
  pawlock once -w 600 migrate:v42 -- ./migrate.sh          and the others wait for it
  pawlock once --skip "report:$(date +%F)" -- ./report.sh  once a day, silent afterwards
  pawlock once --forget migrate:v42                        so that it can be run again

\b
Exit codes:
  0-125  exit code of COMMAND, now   75  another client runs it, and still does
         or as it was recorded           after -w
  126    COMMAND is not executable   76  the lease was lost and COMMAND was ended
  127    COMMAND was not found       69  the server is unreachable or refused
  128+n  signal n ended COMMAND      64  wrong usage

The first caller runs COMMAND, and records its exit code, standard output and standard error. Every later caller within
--keep gets them without running it. If COMMAND fails, nothing is recorded, and the next caller runs it again; with
--keep-failures, an exit code other than 0 is recorded, too. Nothing is recorded if a signal ended COMMAND or was passed
on to end it. If this host dies, the next caller runs COMMAND after at most the TTL. It is not exactly-once: a host that
dies after COMMAND has ended and before that is recorded has run it, and the next one runs it again. PAWLOCK_FENCE in the
environment of COMMAND is the fencing token.

Standard output and error of COMMAND are pipes, even on a terminal, and are shown as they come. A replay prints each of
them as a whole: the order between the two is not recorded. At most 64 KiB are recorded: of longer output the beginning
of each, and one line on standard error says so, now and at each replay. COMMAND continues when nobody reads its output
any more. What its background processes print after COMMAND has exited is lost.

Signals, --max-hold and a lost lease end COMMAND as they do with `pawlock run`. If the server cannot be reached when
COMMAND ends, a line says that the result may not have been recorded, and the exit code is that of COMMAND. If a program
recorded the result (`client.once`), its value is printed as text or JSON, and the exit code is 0.
"""


def _duration(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """Read seconds, or a number with a unit; the library checks the rest."""
    number, unit = (value[:-1], value[-1:]) if value[-1:] in _UNITS else (value, "s")
    try:
        found = float(number) * _UNITS[unit]
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise click.BadParameter(
            "must be a number of seconds, or a number with s, m, h, d or w", ctx, parameter
        )
    return found


def _patience(ctx: click.Context, parameter: click.Parameter, value: float) -> float:
    """Refuse what is no duration."""
    if not value >= 0:
        raise click.BadParameter("must be a number of seconds, 0 or more, or inf", ctx, parameter)
    return value


class _Once(_Run):
    usage = _USAGE

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--forget" in args and "--" not in args:  # there is no command that the option could belong to
            args = [*args, "--"]
        return super().parse_args(ctx, args)


@click.command(cls=_Once, epilog=_EXAMPLES, options_metavar="[OPTIONS]", context_settings=SETTINGS)
@click.argument("name", metavar="KEY")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.option(
    "--keep",
    default="1d",
    metavar="TIME",
    callback=_duration,
    help="How long the result is kept: seconds, or a number with s, m, h, d or w (default: 1d).",
)
@click.option(
    "-w",
    "--wait",
    type=float,
    default=0.0,
    metavar="S",
    callback=_patience,
    help="While another client runs it, wait at most S seconds for its result; inf: for as long as it takes.",
)
@click.option("--skip", is_flag=True, help="If it was done, print nothing and exit with 0.")
@click.option(
    "--keep-failures",
    is_flag=True,
    help="Also record an exit code other than 0, instead of running it again.",
)
@click.option("--forget", is_flag=True, help="Delete the recorded result of KEY, and run nothing.")
@click.option(
    "--ttl",
    type=float,
    metavar="S",
    callback=seconds,
    help="Lease TTL in seconds: how long after a crash the next caller runs it (default: 30).",
)
@click.option(
    "--max-hold",
    type=float,
    metavar="S",
    callback=seconds,
    help="End the command after S seconds (exit 76); nothing is recorded.",
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
@click.pass_context
def once(ctx: click.Context, /, **given: Any) -> int:
    """Run a command once for KEY; a later call replays its output and exit code.

    COMMAND runs without a shell. KEY is independent of a lock with the same name.
    """
    if os.name != "posix":
        say("`pawlock once` needs POSIX process groups and signals: not available here", colour="red")
        return Exit.UNAVAILABLE
    if given["as_json"]:
        use_json()
    child: list[str] = ctx.obj
    if given["forget"]:
        if child:
            raise click.UsageError("--forget runs no command", ctx)
        return _forget(given)
    if not child:
        raise click.UsageError(f"no command given; {_USAGE}", ctx)
    exit_code = _cannot_run(child[0])
    if exit_code:
        return exit_code
    _set_up_logging(verbose=given["verbose"])
    code = _run(child, given)
    if given["as_json"]:
        report_end(given["name"], code)
    return code


def _run(child: list[str], given: dict[str, Any]) -> int:
    from pawlock.cli._keeper import LockRequest
    from pawlock.cli._output import Recording
    from pawlock.cli._wrapper import Job, run_job

    verbosity = {"quiet": given["quiet"], "verbose": given["verbose"] or given["as_json"]}
    request = LockRequest(
        name=given["name"],
        url=given["url"],
        defaults={} if given["namespace"] is None else {"namespace": given["namespace"]},
        options={key: given[key] for key in ("keep", "ttl", "max_hold") if given[key] is not None},
        timeout=None if math.isinf(given["wait"]) else given["wait"],
        kind="once",
    )
    record = Recording(failures=given["keep_failures"], skips=given["skip"], **verbosity)
    return run_job(
        Job(request=request, command=child, kill_after=given["kill_after"], record=record, **verbosity)
    )


def _forget(given: dict[str, Any]) -> int:
    from pawlock._template import escape

    with client_of(given) as client:
        found = client.once(escape(given["name"])).forget()
    if not given["quiet"]:
        text = "the result was deleted" if found else "there was no result"
        say(f"{given['name']!r}: {text}", event="forgotten", name=given["name"], deleted=found)
    return Exit.OK
