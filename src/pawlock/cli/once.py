"""`pawlock once`: run a command once, and tell every later caller its exit code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli._common import SETTINGS, as_seconds, client_of
from pawlock.cli.exits import Exit, say, use_json
from pawlock.cli.run import RunCommand, carry_out, job_options
from pawlock.core.options import OnceKwargs

if TYPE_CHECKING:
    import pawlock
    from pawlock.cli._wrapper import Job, Turn

__all__ = ["once"]

_EXAMPLES = """\b
Examples:
  pawlock once migrate:v42 --keep 30d -- ./migrate.sh      on every pod: one runs it
  pawlock once -w 10m migrate:v42 -- ./migrate.sh          and the others wait for it
  pawlock once "report:$(date +%F)" -- ./report.sh         once a day
  pawlock once --forget migrate:v42                        so that it can be run again

\b
Exit codes:
  0-125  exit code of COMMAND, now   75  another client runs it, and still does
         or as it was recorded           after -w
  126    COMMAND is not executable   76  the lease was lost and COMMAND was ended
  127    COMMAND was not found       69  the server is unreachable or refused
  128+n  signal n ended COMMAND      64  wrong usage

TIME is in seconds, or a number with ms, s, m, h, d or w: 90, 90s, 1.5h, 30d.

The first caller runs COMMAND, and its exit code is recorded. Every later caller within --keep exits with it, without running
COMMAND. What COMMAND prints is not recorded: that belongs in a log. If COMMAND fails, nothing is recorded, and the next
caller runs it again; with --keep-failures, an exit code other than 0 is recorded, too. Nothing is recorded if a signal ended
COMMAND or was passed on to end it. If this host dies, the next caller runs COMMAND after at most the TTL. It is not
exactly-once: a host that dies after COMMAND has ended and before that is recorded has run it, and the next one runs it
again. PAWLOCK_FENCE in the environment of COMMAND is the fencing token.

Signals, --max-hold and a lost lease end COMMAND as they do with `pawlock run`. If the server cannot be reached when COMMAND
ends, a line says that the result may not have been recorded, and the exit code is that of COMMAND. If a program recorded the
result (`client.once`), the exit code is 0.
"""


class _Once(RunCommand):
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
    callback=as_seconds(0.05),
    help="How long the result is kept (default: 1d).",
)
@click.option(
    "-w",
    "--wait",
    callback=as_seconds(most=math.inf),
    default="0",
    metavar="TIME",
    help="While another client runs it, wait at most for TIME for its result; inf: for as long as it takes.",
)
@click.option("--skip", is_flag=True, help="If it was done, exit with 0 whatever was recorded.")
@click.option("--keep-failures", is_flag=True, help="Also record an exit code other than 0.")
@click.option("--forget", is_flag=True, help="Delete the recorded result of KEY, and run nothing.")
@job_options(OnceKwargs)
@click.pass_context
def once(ctx: click.Context, /, **given: Any) -> int:
    """Run a command once for KEY; a later call exits with the same code.

    COMMAND runs without a shell. KEY is independent of a lock with the same name.
    """
    if given["forget"]:
        if ctx.obj:
            raise click.UsageError("--forget runs no command", ctx)
        return _forget(given)
    wait = None if math.isinf(given["wait"]) else given["wait"]
    return carry_out(ctx, given, wait, _turn(given))


def _turn(given: Mapping[str, Any]) -> type[Turn]:
    """What is done once, under a lease."""
    from pawlock import Done, Running, Started
    from pawlock.cli._wrapper import Turn
    from pawlock.primitives.once.operation import running

    class OnceTurn(Turn):
        _started: Started
        kind = "once"

        def take(self, client: pawlock.Client) -> pawlock.Lease | int:
            state = self.settle(client.once).begin(wait=given["wait"] != 0, **self.job.limit)
            if isinstance(state, Running):
                raise running(self.job.name, state)
            if isinstance(state, Done):
                return _done(state, given, self.job)
            self._started = state
            return state.lease

        def give_back(self, lease: pawlock.Lease, code: int | None) -> None:
            if self.asked and not code and not self.job.quiet:
                say("the command was asked to end by a signal: nothing is recorded", colour="yellow")
            if self.asked or code is None or code < 0 or (code and not given["keep_failures"]):
                super().give_back(lease, code)
            elif not self._ending:
                self._started.finish({"exit_code": code})

    return OnceTurn


def _done(done: pawlock.Done, given: Mapping[str, Any], job: Job) -> int:
    """The exit code that was recorded; 0 if a program recorded something else."""
    match done.value:
        case {"exit_code": int(recorded)} if 0 < recorded < 256:
            code = recorded
        case _:
            code = 0
    if job.verbose:
        at = done.at.astimezone().isoformat(timespec="seconds")
        said = f"{job.name!r} was done at {at} with fence {done.fence} and exit code {code}"
        say(said, colour="dim", event="done", fence=done.fence, at=done.at.isoformat(), exit_code=code)
    return Exit.OK if given["skip"] else code


def _forget(given: Mapping[str, Any]) -> int:
    from pawlock._template import escape

    if given["as_json"]:
        use_json()
    with client_of(given) as client:
        found = client.once(escape(given["name"])).forget()
    if not given["quiet"]:
        text = "the result was deleted" if found else "there was no result"
        say(f"{given['name']!r}: {text}", event="forgotten", name=given["name"], deleted=found)
    return Exit.OK
