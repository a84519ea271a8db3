"""`pawlock completion`: what makes a shell complete `pawlock`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pawlock.cli._common import SETTINGS, write
from pawlock.cli.exits import Exit

__all__ = ["completion"]

_EXAMPLES = """\b
Examples:
  pawlock completion bash > ~/.local/share/bash-completion/completions/pawlock
  pawlock completion zsh  > ~/.zfunc/_pawlock   with fpath+=~/.zfunc before compinit
  pawlock completion fish > ~/.config/fish/completions/pawlock.fish

\b
Exit codes:
  0   success   64  wrong usage
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="bash|zsh|fish")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print a completion script for a shell."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}: use bash, zsh or fish")
    script = found(ctx.find_root().command, {}, "pawlock", "_PAWLOCK_COMPLETE")
    # Not `source()`: for bash it looks for the version of a bash here, and the script may be for elsewhere.
    write(script.source_template % script.source_vars())
    return Exit.OK
