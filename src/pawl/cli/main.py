"""The command `pawl`: finds the verb, loads its file, turns errors into one line and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import click

from pawl.cli.exits import Exit, by_signal, say

__all__ = ["run_command"]

_VERBS = {
    "doctor": ("pawl.cli.doctor", "doctor", "Look at a server for what would break a lock's promises."),
    "run": ("pawl.cli.run", "run", "Run a command while holding a lock."),
    "serve": ("pawl.cli.serve", "serve", "Serve locks over HTTP."),
    "server": ("pawl.cli.server", "server", "Start, stop and look at the embedded server of this machine."),
}
_SIGINT = 2


class _Verbs(click.Group):
    """A group that imports a verb's file only when the verb is used, so that `pawl --help` stays light."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        if cmd_name not in _VERBS:
            return None
        module, attribute, _ = _VERBS[cmd_name]
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.{attribute} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _VERBS[name][2]) for name in self.list_commands(ctx)])


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  # click's signature
    if wanted and not ctx.resilient_parsing:
        from pawl import __version__

        click.echo(f"pawl {__version__}")
        ctx.exit()


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`pawl COMMAND --help` explains a command with examples. Which server: --url, else PAWL_URL, else "
    "one for this machine, started when it is needed.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show it and exit.",
)
def _pawl() -> None:
    """Distributed locks on Redis and Valkey."""


def run_command(arguments: Sequence[str]) -> int:
    """Run `pawl` with these arguments.

    Args:
        arguments: What follows the program's name.

    Returns:
        The exit code.
    """
    from pawl.errors import ConfigurationError, PawlError

    try:
        result = _pawl.main(list(arguments), prog_name="pawl", standalone_mode=False)
    except click.UsageError as error:
        return _misused(error)
    except click.ClickException as error:
        say(error.format_message(), colour="red")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return by_signal(_SIGINT)
    except PawlError as error:
        say(str(error), colour="red")
        return Exit.USAGE if isinstance(error, ConfigurationError) else Exit.UNAVAILABLE
    return result if isinstance(result, int) else Exit.OK


def _misused(error: click.UsageError) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later; it carries the whole help
        error.show()
    else:
        hint = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        say(f"{error.format_message()}{hint}", colour="red")
    return Exit.USAGE
