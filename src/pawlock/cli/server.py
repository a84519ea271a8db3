"""`pawlock server`: start, stop and inspect the embedded server of this user and machine."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from urllib.parse import quote

import click

from pawlock import embedded
from pawlock._target import state_dir_of
from pawlock.cli.exits import Exit, say
from pawlock.errors import ConfigurationError

__all__ = ["server"]

_NOT_RUNNING = 3
"""What `systemctl status` and init scripts exit with as well."""

_STATE_DIR = click.option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder with the server's socket and log (that of an embedded:// URL, else PAWLOCK_STATE_DIR, else "
    "~/.local/state/pawlock).",
)

_START = """
\b
Examples:
  pawlock server start
  PAWLOCK_URL=$(pawlock server start --quiet) my-program
\b
Exit codes:
   0  running; the URL is on standard output
  64  invalid folder or setting, or no server program is installed
  69  the server did not start
"""

_STATUS = """
\b
Examples:
  pawlock server status
  pawlock server status --json | jq .clients
\b
Exit codes:
   0  running
   3  not running
  69  running, but not responding
"""

_STOP = """
\b
Examples:
  pawlock server stop
  pawlock server stop --force
\b
Exit codes:
   0  stopped, or was not running
  69  not responding, or not stopping: use --force
  75  clients are connected
"""


@click.group()
def server() -> None:
    """Start, stop and inspect the embedded server of this machine.

    You do not have to start it: pawlock starts it on demand when no URL is set. It serves only this user on this
    machine, keeps its data in memory, and exits after PAWLOCK_EMBEDDED_IDLE seconds without clients (default: 300).
    """


@server.command(epilog=_START)
@_STATE_DIR
@click.option("-q", "--quiet", is_flag=True, help="Print only the URL.")
def start(*, state_dir: Path | None, quiet: bool) -> int:
    """Start the server unless it is running, and print its URL."""
    found = embedded.ensure(_folder(state_dir))
    click.echo(f"unix://{quote(found.socket)}")
    if not quiet:
        what = "started" if found.started else "runs already"
        say(f"{what}: process {found.pid}, {found.state_dir}, {found.binary}")
    return Exit.OK


@server.command(epilog=_STATUS)
@_STATE_DIR
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def status(*, state_dir: Path | None, as_json: bool) -> int:
    """Show whether the server is running, without starting it."""
    found = embedded.status(_folder(state_dir))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found)))
    elif found.running:
        click.echo(_described(found))
    else:
        click.echo(f"not running; {found.state_dir}")
    return Exit.OK if found.running else _NOT_RUNNING


@server.command(epilog=_STOP)
@_STATE_DIR
@click.option("--force", is_flag=True, help="Disconnect clients, and kill a server that does not respond.")
def stop(*, state_dir: Path | None, force: bool) -> int:
    """Stop the server. Its data go with it: leases that were held are lost."""
    try:
        stopped = embedded.stop(_folder(state_dir), force=force)
    except embedded.ServerInUse as error:
        say(f"{error.text}: stop them first, or use --force [{error.code}]", colour="red")
        return Exit.CONFLICT
    click.echo("stopped" if stopped else "was not running")
    return Exit.OK


def _folder(given: Path | None) -> Path | str | None:
    """The folder that was named: by the option, or by an embedded URL before the command or in PAWLOCK_URL.

    Raises:
        ConfigurationError: It is no embedded URL that was given before the command, or a wrong one.
    """
    if given is not None:
        return given
    named = click.get_current_context().find_root().params.get("url")
    url = named or os.environ.get("PAWLOCK_URL", "")
    if url.startswith("embedded:"):
        return state_dir_of(url)
    if named:
        raise ConfigurationError(
            f"`pawlock server` works with embedded:// only, not {url.partition('://')[0]}://"
        )
    return None


def _described(found: embedded.EmbeddedStatus) -> str:
    lines = {
        "server": f"{found.version}, process {found.pid}",
        "socket": found.socket,
        "folder": found.state_dir,
        "program": found.binary,
        "clients": found.clients,
    }
    return "running\n" + "\n".join(f"  {name:<8} {value}" for name, value in lines.items())
