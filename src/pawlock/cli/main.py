"""The command `pawlock`: finds the verb, loads its file, turns errors into one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from pawlock._hints import near
from pawlock.cli.exits import Exit, by_signal, code_of, drop_output, ended_by, explained, say
from pawlock.cli.verbs import VERBS, overview

__all__ = ["group", "run_command"]

_SIGINT = 2
_SIGPIPE = 13


class _Verbs(click.Group):
    """A group that imports a verb's file only when the verb is used, so that `pawlock --help` stays light."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            if hint := near(cmd_name.replace("_", "-"), VERBS):
                ctx.fail(f"No such command {cmd_name!r}: {hint}")
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"pawlock.cli.{name}"), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb. Here and not in `run_command`, since click prints an empty line at Ctrl-C."""
        try:
            result = super().invoke(ctx)
            _flush()
        except BrokenPipeError:
            # Who read our output has enough (`pawlock ls | head -1`).
            drop_output()
            return by_signal(_SIGPIPE)
        except KeyboardInterrupt as error:
            return ended_by(getattr(error, "number", _SIGINT))
        return result

    def get_help(self, ctx: click.Context) -> str:  # noqa: ARG002  # click's signature
        return overview().rstrip("\n")


def _flush() -> None:
    if sys.stdout is not None:  # it is None when it was closed before we began
        sys.stdout.flush()


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  # click's signature
    if wanted and not ctx.resilient_parsing:
        from pawlock import __version__

        click.echo(f"pawlock {__version__}")
        ctx.exit()


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option("--url", metavar="URL", help="Server URL (default: PAWLOCK_URL, else the embedded server).")
@click.option("--namespace", metavar="TEXT", help="Key prefix of the locks (default: pawlock).")
@click.pass_context
def group(ctx: click.Context, /, **given: str | None) -> None:
    """Distributed locks on Redis and Valkey."""
    options = {option: value for option, value in given.items() if value is not None}
    # What a command is given itself goes before it.
    ctx.default_map = dict.fromkeys(VERBS, options)


def run_command(arguments: Sequence[str]) -> int:
    """Run `pawlock` with these arguments.

    Args:
        arguments: What follows the program's name.

    Returns:
        The exit code.
    """
    from pawlock.errors import PawlockError

    try:
        result = group.main(list(arguments), prog_name="pawlock", standalone_mode=False)
    except click.UsageError as error:
        return _misused(error)
    except click.ClickException as error:
        say(error.format_message(), colour="red")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ended_by(_SIGINT)
    except PawlockError as error:
        say(explained(error), colour="red")
        return code_of(error)
    except OSError as error:
        say(f"system error: {error}", colour="red")
        drop_output()
        return Exit.OUTPUT
    return result if isinstance(result, int) else Exit.OK


def _misused(error: click.UsageError) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later; it carries the whole help
        error.show()
    else:
        hint = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        # Some of its messages are lists of several lines.
        say(f"{' '.join(error.format_message().split())}{hint}", colour="red")
    return Exit.USAGE
