"""`pawlock serve`: the lock service over HTTP."""

from __future__ import annotations

import json
import logging
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli._common import as_seconds
from pawlock.cli.exits import Exit, say
from pawlock.errors import ConfigurationError

if TYPE_CHECKING:
    from pawlock.service.access import Access

__all__ = ["serve"]

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_EPILOG = """
\b
Examples:
  pawlock serve
  pawlock serve --url embedded://   to try it out in a container
  pawlock serve --make-token web --namespace pawlock --role acquire --role read --tokens tokens.json
  pawlock serve --tokens tokens.json --host 0.0.0.0 --certificate tls.crt --key tls.key
\b
Exit codes:
   0  stopped by a signal
  64  invalid setting, or pawlock[serve] is not installed
  69  startup failed
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--url", metavar="URL", help="Server URL of the locks (default: PAWLOCK_URL, else the embedded server)."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8750,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free port.",
)
@click.option("--tokens", type=click.Path(path_type=Path), envvar="PAWLOCK_TOKENS", help="Token file.")
@click.option("--certificate", metavar="FILE", help="TLS certificate chain.")
@click.option("--key", metavar="FILE", help="TLS private key.")
@click.option(
    "--client-ca", metavar="FILE", help="Accept only clients with a certificate signed by these CAs."
)
@click.option(
    "--probe-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Also serve /healthz and /readyz on this port, in plain HTTP without a client certificate.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the address, or the new token, as a JSON object."
)
@click.option("--access-log", is_flag=True, help="Print a line for each request.")
@click.option(
    "--insecure-http", is_flag=True, help="Allow plain HTTP on a public address, behind a TLS proxy."
)
@click.option(
    "--drain-delay",
    callback=as_seconds(),
    default="0",
    metavar="TIME",
    help="How long to report not ready before shutting down.",
)
@click.option(
    "--make-token", metavar="ID", help="Create a token, print it, store its hash in --tokens, and exit."
)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="With --make-token: allowed namespace; * matches any text.",
)
@click.option(
    "--allow-key",
    "keys",
    multiple=True,
    help="With --make-token: allowed key of other programs, as it is on the server; * matches any text.",
)
@click.option("--role", "roles", multiple=True, help="With --make-token: read, acquire, force or admin.")
@click.option(
    "--expires",
    metavar="TIME",
    callback=as_seconds(),
    help="With --make-token: expire after this, as in 90d.",
)
def serve(**given: Any) -> int:
    """Serve locks over HTTP, for curl and programs in any language.

    Without --tokens, it creates a temporary token, prints it once, and listens on localhost only.
    """
    try:
        # Asked for here so that one line says what is missing.
        for needed in ("fastapi", "uvicorn"):
            import_module(needed)
    except ImportError as error:
        say(f"{error.name} is not installed: pip install 'pawlock[serve]'", colour="red")
        return Exit.USAGE
    if given["make_token"]:
        return _make_token(**given)
    return _run(**given)


def _make_token(
    make_token: str, tokens: Path | None, namespaces: tuple[str, ...], keys: tuple[str, ...],
    roles: tuple[str, ...], expires: float | None, *, as_json: bool, **_: Any,
) -> int:  # fmt: skip
    from pawlock.service.access import entry_for, new_secret, write_private

    secret = new_secret()
    ends = None if expires is None else time.time() + expires
    entry = entry_for(make_token, secret, namespaces, roles, ends, keys)
    if tokens is None and not as_json:
        say("add this entry to the token file:")
        click.echo(json.dumps(entry), err=True)
    elif tokens is not None:
        try:
            data: Any = json.loads(tokens.read_text(encoding="utf-8")) if tokens.exists() else {"tokens": []}
            data["tokens"].append(entry)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"tokens {tokens}: {error!r}") from error
        write_private(tokens, json.dumps(data, indent=1) + "\n")
    click.echo(json.dumps({"id": make_token, "token": secret, "entry": entry}) if as_json else secret)
    return Exit.OK


def _run(
    *,
    url: str | None, host: str, port: int, tokens: Path | None, certificate: str | None, key: str | None,
    client_ca: str | None, insecure_http: bool, drain_delay: float, probe_port: int | None,
    as_json: bool, access_log: bool, **_: Any,
) -> int:  # fmt: skip
    from pawlock._target import find_target
    from pawlock.service.access import Access
    from pawlock.service.app import create_app
    from pawlock.service.requests import State
    from pawlock.service.runner import Listening, bind
    from pawlock.service.runner import serve as listen
    from pawlock.service.spaces import Spaces

    _check_reach(host, tokens, certificate, client_ca, insecure_http=insecure_http)
    state = State(Spaces(url), Access(tokens))
    state.access.load()
    # So that what can never work is said now, and not at the first request.
    find_target(url)
    state.spaces.of("pawlock")
    try:
        sockets, *probes = bind(host, port, *([] if probe_port is None else [probe_port]))
    except OSError as error:
        say(error.strerror or str(error), colour="red")
        return Exit.UNAVAILABLE
    listening = Listening(
        sockets=sockets, probes=[one for found in probes for one in found], certificate=certificate, key=key,
        client_ca=client_ca,
        drain_delay=drain_delay, access_log=access_log,
    )  # fmt: skip
    _log_to_stderr(access_log=access_log)
    secret = _token_for_this_run(state.access, as_json=as_json) if tokens is None else None

    def announce(bound: int, probed: int | None) -> None:
        shown = f"[{host}]" if ":" in host else host
        probes = None if probed is None else f"http://{shown}:{probed}"
        _announce("https" if certificate else "http", f"{shown}:{bound}", probes, secret, as_json=as_json)

    return Exit.OK if listen(create_app(state), state, listening, announce) else Exit.UNAVAILABLE


def _token_for_this_run(access: Access, *, as_json: bool) -> str:
    from pawlock.service.access import entry_for, new_secret

    secret = new_secret()
    access.add(entry_for("this-run", secret, ["*"], ["admin"], None, ["*"]))
    if not as_json:
        say("temporary token (not saved):")
        click.echo(secret, err=True)
    return secret


def _log_to_stderr(*, access_log: bool) -> None:
    """Print what the service warns of, who force-released what, and maybe a line for each request."""
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("pawlock: %(message)s"))
    for name in ("pawlock.service", "pawlock.admin", *(["uvicorn.access"] if access_log else [])):
        logging.getLogger(name).addHandler(lines)


def _announce(scheme: str, where: str, probes: str | None, secret: str | None, *, as_json: bool) -> None:
    listening = f"{scheme}://{where}"
    if as_json:
        click.echo(json.dumps({"listening": listening, "probes": probes, "token": secret}))
        return
    say(f"listening on {listening}")
    if probes is not None:
        say(f"health checks on {probes}")


def _check_reach(
    host: str, tokens: Path | None, certificate: str | None, client_ca: str | None, *, insecure_http: bool
) -> None:
    if client_ca and not certificate:
        raise ConfigurationError("--client-ca also needs --certificate")
    if host in _LOOPBACK:
        return
    if tokens is None:
        raise ConfigurationError(f"--host {host} is not localhost: pass --tokens")
    if certificate is None and not insecure_http:
        raise ConfigurationError(
            f"--host {host} is not localhost: pass --certificate and --key, or --insecure-http"
        )
