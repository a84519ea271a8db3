"""`pawl completion`: what makes a shell complete `pawl`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pawl.cli._common import SETTINGS, write
from pawl.cli.exits import Exit

__all__ = ["completion"]

_EXAMPLES = """\b
Examples:
  pawl completion bash > ~/.local/share/bash-completion/completions/pawl
  pawl completion zsh  > ~/.zfunc/_pawl   with fpath+=~/.zfunc before compinit
  pawl completion fish > ~/.config/fish/completions/pawl.fish

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
    script = found(ctx.find_root().command, {}, "pawl", "_PAWL_COMPLETE")
    # Not `source()`: for bash it looks for the version of a bash here, and the script may be for elsewhere.
    write(script.source_template % script.source_vars())
    return Exit.OK
