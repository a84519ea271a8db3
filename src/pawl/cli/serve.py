"""`pawl serve`: the lock service over HTTP."""

from __future__ import annotations

import json
import logging
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pawl.cli.exits import Exit, say
from pawl.errors import ConfigurationError

if TYPE_CHECKING:
    from pawl.service.access import Access

__all__ = ["serve"]

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_EPILOG = """
\b
Examples:
  pawl serve
  pawl serve --url embedded://     in a container, to try it out
  pawl serve --make-token web --namespace pawl --role acquire --role read --tokens tokens.json
  pawl serve --tokens tokens.json --host 0.0.0.0 --certificate tls.crt --key tls.key
\b
Exit codes:
   0  it was ended by a signal
  64  a setting can never work, or pawlock[serve] is not installed
  69  it could not begin
"""


@click.command(epilog=_EPILOG)
@click.option("--url", metavar="URL", help="The server with the locks (PAWL_URL, else one for this machine).")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8750, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option("--tokens", type=click.Path(path_type=Path), envvar="PAWL_TOKENS", help="The file of tokens.")
@click.option("--certificate", metavar="FILE", help="TLS: the certificate chain.")
@click.option("--key", metavar="FILE", help="TLS: its private key.")
@click.option(
    "--client-ca", metavar="FILE", help="Let in only clients with a certificate of these authorities."
)
@click.option(
    "--probe-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Answer /healthz and /readyz there, too: in plain HTTP, without a certificate, and nothing else.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Say where it listens, or what was made, as one JSON object."
)
@click.option(
    "--history",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="N",
    help="Remember the last N grants of each name (0: none).",
)
@click.option(
    "--log",
    type=click.Choice(["none", "audit", "requests"]),
    default="audit",
    show_default=True,
    help="Write to stderr, a line of JSON for each: what was refused and forced; or every request, too.",
)
@click.option("--insecure-http", is_flag=True, help="Listen beyond this machine without TLS, behind a proxy.")
@click.option("--drain-delay", default=0.0, metavar="S", help="Seconds between 'not ready' and the end.")
@click.option(
    "--make-token", metavar="ID", help="Make a token, print it, keep its hash in --tokens; serve nothing."
)
@click.option("--namespace", "namespaces", multiple=True, help="With --make-token: where; * for any text.")
@click.option("--role", "roles", multiple=True, help="With --make-token: read, acquire, force, admin.")
@click.option("--expires", metavar="DAYS", type=float, help="With --make-token: after how many days.")
def serve(**given: Any) -> int:
    """Serve locks over HTTP, to curl and programs in any language.

    Without --tokens it makes a token for this run, shows it once, and listens on this machine only.
    """
    try:
        # Asked for here so that one line says what is missing.
        for needed in ("fastapi", "httptools", "uvicorn"):
            import_module(needed)
    except ImportError as error:
        say(f"{error.name} is not installed: pip install 'pawlock[serve]'", colour="red")
        return Exit.USAGE
    if given["make_token"]:
        return _make_token(**given)
    return _run(**given)


def _make_token(
    make_token: str, tokens: Path | None, namespaces: tuple[str, ...], roles: tuple[str, ...],
    expires: float | None, *, as_json: bool, **_: Any,
) -> int:  # fmt: skip
    from pawl.service.access import entry_for, new_secret, write_private

    secret = new_secret()
    ends = None if expires is None else time.time() + expires * 86400
    entry = entry_for(make_token, secret, namespaces, roles, ends)
    if tokens is None and not as_json:
        say("add this to the file of tokens:")
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
    as_json: bool, history: int, log: str, **_: Any,
) -> int:  # fmt: skip
    from pawl.service.access import Access
    from pawl.service.app import create_app
    from pawl.service.config import Limits
    from pawl.service.requests import State
    from pawl.service.runner import Listening
    from pawl.service.runner import serve as listen
    from pawl.service.spaces import Spaces

    _check_reach(host, tokens, certificate, client_ca, insecure_http=insecure_http)
    state = State(Spaces(url, history), Access(Limits(), tokens))
    state.access.load()
    # Made now, so that what can never work is said now.
    state.spaces.of("pawl")
    try:
        listening = Listening(
            host, port, certificate=certificate, key=key, client_ca=client_ca, drain_delay=drain_delay,
            probe_port=probe_port,
        )  # fmt: skip
    except OSError as error:
        say(error.strerror or str(error), colour="red")
        return Exit.UNAVAILABLE
    _log_to_stderr(log)
    secret = _token_for_this_run(state.access, as_json=as_json) if tokens is None else None

    def tell(bound: int, probed: int | None) -> None:
        shown = f"[{host}]" if ":" in host else host
        probes = None if probed is None else f"http://{shown}:{probed}"
        _tell("https" if certificate else "http", f"{shown}:{bound}", probes, secret, as_json=as_json)

    return Exit.OK if listen(create_app(state), state, listening, tell) else Exit.UNAVAILABLE


def _token_for_this_run(access: Access, *, as_json: bool) -> str:
    from pawl.service.access import entry_for, new_secret

    secret = new_secret()
    access.add(entry_for("this-run", secret, ["*"], ["admin"], None))
    if not as_json:
        say("a token for this run, which is kept nowhere:")
        click.echo(secret, err=True)
    return secret


def _log_to_stderr(which: str) -> None:
    """Write what happens as lines of JSON."""
    from pawl.service.journal import JsonLines

    lines = JsonLines(lambda line: click.echo(line, err=True))
    shown = {"none": (), "audit": ("audit",), "requests": ("audit", "access")}[which]
    for name in ("audit", "access"):
        logger = logging.getLogger(f"pawl.service.{name}")
        logger.propagate = False
        logger.setLevel(logging.INFO if name in shown else logging.CRITICAL)
        logger.addHandler(lines)
    # What goes wrong is always told.
    service = logging.getLogger("pawl.service")
    service.setLevel(logging.WARNING)
    service.addHandler(lines)


def _tell(scheme: str, where: str, probes: str | None, secret: str | None, *, as_json: bool) -> None:
    listening, url = f"{scheme}://{where}", f"{scheme}+pawl://{where}"
    if as_json:
        click.echo(json.dumps({"listening": listening, "url": url, "probes": probes, "token": secret}))
        return
    say(f"listening on {listening}")
    say(f"clients of pawl connect to {scheme}+pawl://<token>@{where}")
    if probes is not None:
        say(f"probes are answered at {probes}")


def _check_reach(
    host: str, tokens: Path | None, certificate: str | None, client_ca: str | None, *, insecure_http: bool
) -> None:
    if client_ca and not certificate:
        raise ConfigurationError("--client-ca needs --certificate")
    if host in _LOOPBACK:
        return
    if tokens is None:
        raise ConfigurationError(f"--host {host}: beyond this machine it needs --tokens")
    if certificate is None and not insecure_http:
        raise ConfigurationError(
            f"--host {host}: beyond this machine it needs --certificate, or --insecure-http"
        )
