"""`pawlock run`: run a command while holding a lock."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import click

from pawlock.cli._common import name_argument
from pawlock.cli.exits import Exit, say, use_json

__all__ = ["report_end", "run"]

_USAGE = "write: pawlock run [OPTIONS] NAME -- COMMAND [ARG…]"
_EXAMPLES = """\b
Examples:
  pawlock run backup -- tar czf backup.tgz data   wait for the lock, then run
  pawlock run -n daily-report -- ./report.sh      skip this run if it is already running (exit 75)
  pawlock run -n -E 0 tick -- ./tick.sh           the same from cron, with exit code 0
  pawlock run -w 30 deploy:web -- make deploy     wait at most 30 seconds
  pawlock run --min-hold 50 hourly -- ./hourly    also keep out hosts whose cron starts late
  pawlock run job -- sh -c 'echo fence $PAWLOCK_FENCE; exec ./job'

\b
Exit codes:
  0-125  exit code of COMMAND       75  still held: -n, or -w has elapsed (change it with -E)
  126    COMMAND is not executable  76  the lock was lost and COMMAND was ended
  127    COMMAND was not found      69  the server is unreachable or refused
  128+n  signal n ended COMMAND     64  wrong usage

COMMAND gets PAWLOCK_LOCK_NAME, PAWLOCK_FENCE, PAWLOCK_TTL_MS and PAWLOCK_HELD in its environment. PAWLOCK_FENCE is the
fencing token, which increases with every new holder: pass it to the store that COMMAND writes to, and let the store refuse
lower tokens.

The process group of COMMAND gets SIGTERM, then SIGKILL after --kill-after seconds, while the lock is still held: at
--max-hold, and when the lease cannot be renewed (the server is unreachable, this process is stopped). The same happens
when the key is deleted or the lock is force-released, and when `pawlock run` itself is killed, even with SIGKILL.

The lock is held until COMMAND exits. Background processes that COMMAND leaves behind run without the lock.
"""


class _Run(click.Command):
    """Splits at the first `--` before anything is parsed, so that options may also follow the name."""

    usage = _USAGE

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            own, child = args[:at], args[at + 1 :]
            ctx.allow_interspersed_args = True
            ctx.obj = child
            rest = super().parse_args(ctx, own)
            unexpected = ctx.params["command"]
            if unexpected:
                raise click.UsageError(f"unexpected {unexpected[0]!r} before `--`; {self.usage}", ctx)
            return rest
        ctx.allow_interspersed_args = False
        rest = super().parse_args(ctx, args)
        ctx.obj = list(ctx.params["command"])
        return rest


def _seconds(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse what is no duration; the library checks the rest."""
    if value is not None and not 0 <= value < float("inf"):
        raise click.BadParameter("must be a number of seconds, 0 or more", ctx, parameter)
    return value


@click.command(
    cls=_Run,
    epilog=_EXAMPLES,
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@name_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait: exit 75 if the lock is held.")
@click.option("-w", "--wait", type=float, metavar="S", callback=_seconds, help="Wait at most S seconds.")
@click.option(
    "-E",
    "--conflict-exit-code",
    "conflict",
    type=click.IntRange(0, 255),
    default=int(Exit.CONFLICT),
    metavar="N",
    help="Exit code if the lock is held by another client (default: 75).",
)
@click.option(
    "--ttl",
    type=float,
    metavar="S",
    callback=_seconds,
    help="Lock TTL in seconds: how long the lock remains if this process crashes (default: 30).",
)
@click.option(
    "--max-hold",
    type=float,
    metavar="S",
    callback=_seconds,
    help="End the command after holding the lock for S seconds (exit 76).",
)
@click.option(
    "--min-hold",
    type=float,
    metavar="S",
    callback=_seconds,
    help="Keep the lock for at least S seconds, even if the command exits sooner.",
)
@click.option(
    "--on-lost",
    type=click.Choice(["kill", "warn"]),
    default="kill",
    help="When the lock is lost: end the command, or only print a warning (default: kill).",
)
@click.option(
    "--kill-after",
    type=float,
    metavar="S",
    callback=_seconds,
    help="Seconds between SIGTERM and SIGKILL, at most a third of the TTL (default: a sixth of the TTL, at most 5).",
)
@click.option("--url", metavar="URL", help="Server URL (default: PAWLOCK_URL, else the embedded server).")
@click.option("--namespace", metavar="TEXT", help="Key prefix of the locks (default: pawlock).")
@click.option("-q", "--quiet", is_flag=True, help="Only print errors.")
@click.option("-v", "--verbose", is_flag=True, help="Print what happens.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print what happens to standard error as JSON, one object per line.",
)
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> int:
    """Run a command while holding the lock NAME.

    COMMAND runs without a shell. Standard input goes to the command, and its exit code is passed on. Signals are
    passed on to the command; before the lock is acquired, they end the wait and leave nothing on the server.
    """
    if os.name != "posix":
        say("`pawlock run` needs POSIX process groups and signals: not available here", colour="red")
        return Exit.UNAVAILABLE
    if given["as_json"]:
        use_json()
    child: list[str] = ctx.obj
    if not child:
        raise click.UsageError(f"no command given; {_USAGE}", ctx)
    if given["nonblock"] and given["wait"] is not None:
        raise click.UsageError("-n and -w cannot be used together", ctx)
    exit_code = _cannot_run(child[0])
    if exit_code:
        return exit_code
    _set_up_logging(verbose=given["verbose"])
    from pawlock.cli._keeper import LockRequest
    from pawlock.cli._wrapper import Job, run_job

    keep = ("ttl", "max_hold", "min_hold")
    request = LockRequest(
        name=given["name"],
        url=given["url"],
        defaults={} if given["namespace"] is None else {"namespace": given["namespace"]},
        options={key: given[key] for key in keep if given[key] is not None},
        timeout=0.0 if given["nonblock"] else given["wait"],
    )
    job = Job(
        request=request,
        command=child,
        conflict=given["conflict"],
        kill_after=given["kill_after"],
        on_lost=given["on_lost"],
        quiet=given["quiet"],
        verbose=given["verbose"] or given["as_json"],
    )
    code = run_job(job)
    if given["as_json"]:
        report_end(given["name"], code)
    return code


def report_end(name: str, code: int) -> None:
    """Say as JSON how it ended."""
    say(f"the exit code is {code}", event="ended", name=name, exit_code=int(code))


def _cannot_run(program: str) -> int:
    """Say before any waiting that there is no such program; 0 when there is one."""
    if shutil.which(program) is not None:
        return 0
    there = Path(program).exists() if os.sep in program else shutil.which(program, mode=os.F_OK)
    if not there:
        say(f"{program}: command not found", colour="red")
        return Exit.NOT_FOUND
    say(f"{program}: not executable", colour="red")
    return Exit.NOT_EXECUTABLE


def _set_up_logging(*, verbose: bool) -> None:
    """Let the library's own log be seen with -v only: what matters is printed by the command in one line."""
    log = logging.getLogger("pawlock")
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("pawlock: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    else:
        log.addHandler(logging.NullHandler())
        log.propagate = False
