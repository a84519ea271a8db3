"""From a URL to an endpoint. Every mistake is told before anything is sent; a password never appears in a text."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pawl.errors import ConfigurationError, NotSupported
from pawl.topology.endpoint import Endpoint

__all__ = ["parse_url"]

_LATER = {
    "redis+sentinel": "Sentinel",
    "rediss+sentinel": "Sentinel",
    "redis+cluster": "Cluster",
    "rediss+cluster": "Cluster",
    "redlock": "Redlock",
    "http+pawl": "the HTTP service",
    "https+pawl": "the HTTP service",
}
_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"},
)
_KNOWN = frozenset({"db", "username", "password", "client_name"})
_CERT_REQS = ("required", "optional", "none")


def parse_url(url: str) -> Endpoint:
    """The endpoint that a URL names.

    Args:
        url: ``redis://[[user]:password@]host[:port][/db]``, ``rediss://…`` (TLS, certificate and host name are
            verified), or ``unix://[[user]:password@]/path/to/socket[?db=0]``. Parts may be percent-coded; an IPv6
            address stands in brackets.

    Raises:
        ConfigurationError: It is not such a URL; the text says which part.
        NotSupported: A scheme that this version does not have yet.
    """
    if not url.strip():
        raise ConfigurationError(
            "the URL is empty: give one such as redis://localhost:6379/0, or none for the embedded server"
        )
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        # The error's own text quotes the part with the password.
        raise ConfigurationError(
            "the URL cannot be read: its host is not well formed (percent-code the special characters of a password)"
        ) from None
    if parts.scheme in _LATER:
        raise NotSupported(f"{parts.scheme}:// ({_LATER[parts.scheme]}) is not part of this version of pawl")
    if parts.scheme not in ("redis", "rediss", "unix"):
        what = f"unknown scheme {parts.scheme[:20]!r}" if "://" in url else "the URL has no scheme"
        raise ConfigurationError(f"{what}: use redis://, rediss://, unix:// or embedded://")
    settings = _options(parts)
    if parts.username:
        settings["username"] = unquote(parts.username)
    if parts.password is not None:
        settings["password"] = unquote(parts.password)
    shown = _unix(parts, settings) if parts.scheme == "unix" else _network(parts, settings)
    return Endpoint(parts.scheme, shown, settings)


def _network(parts: SplitResult, settings: dict[str, Any]) -> str:
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError("the URL's port is not a number from 1 to 65535") from None
    if port == 0:
        raise ConfigurationError("the URL's port is 0; give 1 to 65535")
    host = unquote(parts.hostname or "localhost")
    path = parts.path.strip("/")
    if path:
        settings["db"] = _db(path)
    settings["host"] = host
    settings["port"] = port or 6379
    shown_host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown_host}:{settings['port']}/{settings.get('db', 0)}"


def _unix(parts: SplitResult, settings: dict[str, Any]) -> str:
    path = unquote((parts.hostname or "") + parts.path)
    if not path or path == "/":
        raise ConfigurationError("a unix:// URL needs the path of the socket: unix:///run/redis/redis.sock")
    settings["path"] = path
    return f"unix://{path}?db={settings.get('db', 0)}"


def _db(text: str) -> int:
    if "@" in text:
        raise ConfigurationError(
            "the URL has an '@' after its host: percent-code '/', '?', '#' and '@' in the password (%2F %3F %23 %40)"
        )
    if not text.isascii() or not text.isdigit():
        raise ConfigurationError(
            f"the URL's db is {text[:40]!r}; give a number, as in redis://localhost:6379/0"
        )
    return int(text)


def _options(parts: SplitResult) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if parts.fragment:
        raise ConfigurationError("the URL has a '#': percent-code it as %23 if it belongs to the password")
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in _KNOWN | (_TLS_OPTIONS if parts.scheme == "rediss" else frozenset()):
            known = ", ".join(sorted(_KNOWN | _TLS_OPTIONS))
            raise ConfigurationError(
                f"unknown option {key[:40]!r} in the URL of {parts.scheme}://; known: {known}"
            )
        if key in settings:
            raise ConfigurationError(f"option {key!r} appears twice in the URL")
        settings[key] = _option(key, value)
    return settings


def _option(key: str, value: str) -> Any:
    if key == "db":
        return _db(value)
    if key == "ssl_cert_reqs" and value not in _CERT_REQS:
        raise ConfigurationError(f"ssl_cert_reqs is {value[:40]!r}; give one of {', '.join(_CERT_REQS)}")
    if key == "ssl_check_hostname":
        if value.lower() not in ("true", "false", "1", "0"):
            raise ConfigurationError(f"ssl_check_hostname is {value[:40]!r}; give true or false")
        return value.lower() in ("true", "1")
    return value
