"""From a URL to addresses. Every mistake is reported before anything is sent; a password never appears in a text."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pawlock._hints import words_or_known
from pawlock.errors import ConfigurationError
from pawlock.topology.endpoint import ClusterNodes, Endpoint, Masters, Sentinels, check_files
from pawlock.topology.redlock import is_redlock, masters, split_url

__all__ = ["parse_target", "parse_url"]

_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)
_KNOWN = frozenset({"db", "username", "password", "client_name"})
_SENTINEL_OPTIONS = frozenset({"sentinel_username", "sentinel_password"})
_SEVERAL = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_SCHEMES = ("redis", "rediss", "unix", *_SEVERAL)
_SENTINEL_PORT = 26379
_PORT = 6379
_CERT_REQS = ("required", "optional", "none")
_WELL_KNOWN = (
    "redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, redlock://, etcd:// or embedded://"
)


def parse_target(url: str) -> Endpoint | Sentinels | ClusterNodes | Masters:
    """What a URL names: one server, Sentinels, a cluster, or independent masters.

    Args:
        url: ``redis://[[user]:password@]host[:port][/db]``, ``rediss://…`` (TLS, certificate and host name are
            verified), ``unix://[[user]:password@]/path/to/socket[?db=0]``,
            ``redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/service[?db=0]`` or
            ``redis+cluster://[[user]:password@]host[:port][,host[:port]…]``, or
            ``redlock://[[user]:password@]host[:port],host[:port],…[/db]``; ``rediss+…`` for TLS. Parts may be
            percent-coded; an IPv6 address stands in brackets.

    Raises:
        ConfigurationError: It is not such a URL; the text says which part.
        NotSupported: A scheme that this version does not have yet.
    """
    if is_redlock(url):
        return masters([parse_url(node) for node in split_url(url)])
    parts = _split(url)
    scheme, _, several = parts.scheme.partition("+")
    settings = _options(parts, _SENTINEL_OPTIONS if several == "sentinel" else frozenset[str]())
    if several == "sentinel":
        return _sentinels(parts, scheme, settings)
    if several == "cluster":
        return _cluster(parts, scheme, settings)
    if scheme == "unix":
        return _unix(parts, settings)
    listed = parts.netloc.rpartition("@")[2]
    if "," in listed:
        raise ConfigurationError("the URL has several hosts: use redis+sentinel:// or redis+cluster://")
    if path := parts.path.strip("/"):
        settings["db"] = _db(path)
    return Endpoint(scheme, "", settings).at(*_address(listed, "localhost", _PORT))


def parse_url(url: str) -> Endpoint:
    """The address that the URL of one server names; see ``parse_target``.

    Raises:
        ConfigurationError: It is no such URL.
        NotSupported: A scheme that this version does not have yet.
    """
    found = parse_target(url)
    if not isinstance(found, Endpoint):
        raise ConfigurationError(f"{found.shown} is not a single server: use redis://, rediss:// or unix://")
    return found


def _split(url: str) -> SplitResult:
    if not url.strip():
        raise ConfigurationError("the URL is empty: pass one, or omit it for the embedded server")
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        # The error's own text quotes the part with the password.
        raise ConfigurationError("the URL has an invalid host: percent-encode the password") from None
    if parts.scheme not in _SCHEMES:
        what = f"unknown scheme {parts.scheme[:20]!r}" if "://" in url else "the URL has no scheme"
        raise ConfigurationError(f"{what}: use {_WELL_KNOWN}")
    return parts


def _unix(parts: SplitResult, settings: dict[str, Any]) -> Endpoint:
    path = unquote((parts.hostname or "") + parts.path)
    if path in ("", "/"):
        raise ConfigurationError("a unix:// URL needs the path of the socket: unix:///run/redis/redis.sock")
    return Endpoint("unix", f"unix://{path}?db={settings.get('db', 0)}", {**settings, "path": path})


def _sentinels(parts: SplitResult, scheme: str, settings: dict[str, Any]) -> Sentinels:
    own = {key.partition("_")[2]: settings.pop(key) for key in _SENTINEL_OPTIONS & set(settings)}
    addresses = _addresses(parts, _SENTINEL_PORT)
    service, _, db = unquote(parts.path).strip("/").partition("/")
    if "@" in service:
        _db(service)
    if not service:
        raise ConfigurationError(f"the URL has no service name: write {parts.scheme}://host1,host2/mymaster")
    if db:
        settings["db"] = _db(db)
    own |= {key: value for key, value in settings.items() if key in _TLS_OPTIONS}
    nodes = [Endpoint(scheme, "", own).at(*address) for address in addresses]
    return Sentinels.of(service, nodes, Endpoint(scheme, "", settings))


def _cluster(parts: SplitResult, scheme: str, settings: dict[str, Any]) -> ClusterNodes:
    addresses = _addresses(parts, _PORT)
    path = parts.path.strip("/")
    if settings.pop("db", 0) or (path and _db(path)):
        raise ConfigurationError("a cluster has only db 0: remove the db from the URL")
    return ClusterNodes.of(addresses, Endpoint(scheme, "", settings))


def _addresses(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    what = f"the URL of {parts.scheme}:// "
    if parts.path.startswith("//"):
        raise ConfigurationError(f"{what}has a scheme inside: write {parts.scheme}://host1:port,host2:port")
    for text in parts.netloc.rpartition("@")[2].split(","):
        address = _address(text.strip(), "", default_port)
        if not address[0]:
            raise ConfigurationError(f"{what}has an address without a host: write host1:port,host2:port")
        if address in found:
            raise ConfigurationError(f"{what}names {address[0]}:{address[1]} twice")
        found.append(address)
    return found


def _address(text: str, default_host: str, default_port: int) -> tuple[str, int]:
    one = urlsplit(f"//{text}")
    try:
        port = one.port
    except ValueError:
        port = 0
    if port == 0:
        raise ConfigurationError("the port of the URL must be a number from 1 to 65535")
    return unquote(one.hostname or default_host), port or default_port


def _db(text: str) -> int:
    if "@" in text:
        raise ConfigurationError(
            "the URL has an '@' after its host: percent-encode the password (%2F %3F %23 %40)"
        )
    if not text.isascii() or not text.isdigit():
        raise ConfigurationError(
            f"the db of the URL must be a number, as in redis://localhost:6379/0, got {text[:40]!r}"
        )
    return int(text)


def _options(parts: SplitResult, more: frozenset[str]) -> dict[str, Any]:
    """What stands behind the question mark, and the login."""
    settings: dict[str, Any] = {}
    if parts.fragment:
        raise ConfigurationError("the URL has a '#': percent-encode it as %23 if it belongs to the password")
    allowed = _KNOWN | more | (_TLS_OPTIONS if parts.scheme.startswith("rediss") else frozenset[str]())
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in allowed:
            hint = "it needs rediss://" if key in _TLS_OPTIONS else words_or_known([key], allowed)
            raise ConfigurationError(f"unknown option {key[:40]!r} in the URL; {hint}")
        if key in settings:
            raise ConfigurationError(f"option {key!r} appears twice in the URL")
        settings[key] = _option(key, value)
    check_files(settings)
    login, at, _ = parts.netloc.rpartition("@")
    username, colon, password = login.partition(":")
    if at and username:
        settings["username"] = unquote(username)
    if at and colon:
        settings["password"] = unquote(password)
    return settings


def _option(key: str, value: str) -> Any:
    if key == "db":
        return _db(value)
    if key == "ssl_cert_reqs" and value not in _CERT_REQS:
        raise ConfigurationError(f"ssl_cert_reqs must be one of {', '.join(_CERT_REQS)}, got {value[:40]!r}")
    if key == "ssl_check_hostname":
        if value.lower() not in ("true", "false", "1", "0"):
            raise ConfigurationError(f"ssl_check_hostname must be true or false, got {value[:40]!r}")
        return value.lower() in ("true", "1")
    return value
