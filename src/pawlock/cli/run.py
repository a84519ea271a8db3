"""`pawlock run`: run a command while holding a lock, or while leading."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from pawlock.cli._common import SETTINGS, as_seconds, json_option, name_argument, server_options
from pawlock.cli.exits import Exit, say, use_json
from pawlock.core.options import LockKwargs, LockOptions

__all__ = ["RunCommand", "carry_out", "job_options", "run", "seconds_option"]

F = TypeVar("F", bound=Callable[..., Any])

_FLAGS = LockOptions.known("flag")

_EXAMPLES = """\b
Examples:
  pawlock run backup -- tar czf backup.tgz data   wait for the lock, then run
  pawlock run -n daily-report -- ./report.sh      skip this run if it is already running (exit 75)
  pawlock run -n -E 0 tick -- ./tick.sh           the same from cron, with exit code 0
  pawlock run --min-hold 50s hourly -- ./hourly    also keep out hosts whose cron starts late
  pawlock run --elect scheduler -- ./scheduler    start it on three hosts: one of them runs it

\b
Exit codes:
  0-125  exit code of COMMAND       75  still held: -n, or -w has elapsed (change it with -E)
  126    COMMAND is not executable  76  the lock was lost and COMMAND was ended
  127    COMMAND was not found      69  the server is unreachable or refused
  128+n  signal n ended COMMAND     64  wrong usage

TIME is in seconds, or a number with ms, s, m, h, d or w: 90, 90s, 1.5h, 30d.

COMMAND gets PAWLOCK_LOCK_NAME, PAWLOCK_FENCE and PAWLOCK_TTL_MS in its environment. PAWLOCK_FENCE is the fencing token, which
increases with every new holder: pass it to the store that COMMAND writes to, and let the store refuse lower tokens.

The process group of COMMAND gets SIGTERM, then SIGKILL after --kill-after seconds, while the lock is still held: at
--max-hold, and when the lease cannot be renewed. The same happens when the lock is force-released. On Linux, COMMAND
itself is killed when `pawlock run` is, even with SIGKILL. The lock is held until COMMAND exits.

With --elect, COMMAND runs while this host is the leader. When leadership is lost, and at --max-hold, COMMAND is ended, and
`pawlock run` stands for election again, even while the server is unreachable; when COMMAND exits, it resigns, and exits with
the same code.
"""


class RunCommand(click.Command):
    """Splits at the first `--` before anything is parsed, so that options may also follow the name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the command itself in ``ctx.obj``."""
        at = args.index("--") if "--" in args else None
        ctx.allow_interspersed_args = at is not None
        rest = super().parse_args(ctx, args[:at])
        before = list(ctx.params["command"])
        if at is not None and before:
            raise click.UsageError(f"unexpected {before[0]!r} before `--`", ctx)
        ctx.obj = before if at is None else args[at + 1 :]
        return rest


def seconds_option(*names: str, help: str) -> Callable[[F], F]:  # noqa: A002  # as click calls it
    """Add an option that is a duration."""
    return click.option(*names, callback=as_seconds(), metavar="TIME", help=help)


def job_options(known: type) -> Callable[[F], F]:
    """Add what all commands share that run another command under a lease.

    Args:
        known: The options that such a lease may have, as ``LockKwargs``.
    """

    def add(function: F) -> F:
        for option in (
            json_option("Print what happens to standard error as JSON lines."),
            click.option("-v", "--verbose", is_flag=True, help="Print what happens."),
            click.option("-q", "--quiet", is_flag=True, help="Only print errors."),
            server_options,
            seconds_option(
                "--kill-after", help="Time from SIGTERM to SIGKILL (default: a sixth of the TTL, or 5s)."
            ),
        ):
            function = option(function)
        for name, about in reversed(_FLAGS.items()):
            if name in known.__annotations__:
                function = seconds_option(f"--{name.replace('_', '-')}", help=about["flag"])(function)
        return function

    return add


@click.command(cls=RunCommand, epilog=_EXAMPLES, options_metavar="[OPTIONS]", context_settings=SETTINGS)
@name_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait: exit 75 if the lock is held.")
@seconds_option("-w", "--wait", help="Wait at most for TIME.")
@click.option(
    "-E", "--conflict-exit-code", "conflict", type=click.IntRange(0, 255), default=int(Exit.CONFLICT), metavar="N",
    help="Exit code if the lock is held by another client (default: 75).",
)  # fmt: skip
@click.option("--elect", is_flag=True, help="Run it while leading the election NAME, again and again.")
@click.option(
    "--on-lost", type=click.Choice(["kill", "warn"]), default="kill",
    help="When the lock is lost: end the command, or only print a warning (default: kill).",
)  # fmt: skip
@job_options(LockKwargs)
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> int:
    """Run a command while holding the lock NAME.

    COMMAND runs without a shell. Standard input goes to the command, and its exit code is passed on. Signals are
    passed on to the command; before the lock is acquired, they end the wait and leave nothing on the server.
    """
    if given["nonblock"] and given["wait"] is not None:
        raise click.UsageError("-n and -w cannot be used together", ctx)
    wait = 0.0 if given["nonblock"] else given["wait"]
    kills = given["on_lost"] == "kill"
    return carry_out(ctx, given, wait, None, conflict=given["conflict"], kills=kills, elects=given["elect"])


def carry_out(
    ctx: click.Context, given: Mapping[str, Any], wait: float | None, turn: Any, **more: Any
) -> int:
    """Run the command of a verb under its lease."""
    if os.name != "posix":
        say(f"`{ctx.command_path}` needs POSIX process groups and signals: not available here", colour="red")
        return Exit.UNAVAILABLE
    if given["as_json"]:
        use_json()
    command: list[str] = ctx.obj
    if not command:
        raise click.UsageError("no command given: write it after the options and `--`", ctx)
    if shutil.which(command[0]) is None:  # said before any waiting
        there = os.path.exists(command[0]) if os.sep in command[0] else shutil.which(command[0], os.F_OK)  # noqa: PTH110
        say(f"{command[0]}: {'not executable' if there else 'command not found'}", colour="red")
        return Exit.NOT_EXECUTABLE if there else Exit.NOT_FOUND
    # The library's own log is seen with -v only: what matters is said in one line.
    logging.basicConfig(level="INFO" if given["verbose"] else "CRITICAL", format="pawlock: %(message)s")
    from pawlock.cli._wrapper import Job, Turn, run_job

    job = Job(
        name=given["name"],
        command=command,
        url=given["url"],
        client={"namespace": given["namespace"]},
        options={k: given[k] for k in (*_FLAGS, "keep") if given.get(k) is not None},
        limit={} if wait is None else {"timeout": wait},
        kill_after=given["kill_after"],
        quiet=given["quiet"],
        verbose=given["verbose"] or given["as_json"],
        **more,
    )
    code = run_job(job, turn or Turn)
    if given["as_json"]:
        say(f"the exit code is {code}", event="ended", name=given["name"], exit_code=int(code))
    return code
