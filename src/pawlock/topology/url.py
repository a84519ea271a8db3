"""From a URL to addresses. Every mistake is reported before anything is sent; a password never appears in a text."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pawlock.errors import ConfigurationError
from pawlock.topology.endpoint import ClusterNodes, Endpoint, Masters, Sentinels, check_files
from pawlock.topology.redlock import is_redlock, masters, split_url

__all__ = ["parse_target", "parse_url"]

_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"},
)
_KNOWN = frozenset({"db", "username", "password", "client_name"})
_SENTINEL_OPTIONS = frozenset({"sentinel_username", "sentinel_password"})
_CERT_REQS = ("required", "optional", "none")
_SENTINEL_PORT = 26379
_PORT = 6379
_WELL_KNOWN = "redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, redlock:// or embedded://"


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
    secure = "rediss" if parts.scheme.startswith("rediss") else "redis"
    if parts.scheme in ("redis+sentinel", "rediss+sentinel"):
        return _sentinels(parts, secure)
    if parts.scheme in ("redis+cluster", "rediss+cluster"):
        return _cluster(parts, secure)
    settings = _options(parts, frozenset())
    _put_login(settings, parts)
    shown = _unix(parts, settings) if parts.scheme == "unix" else _network(parts, settings)
    return Endpoint(parts.scheme, shown, settings)


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
        raise ConfigurationError(
            "the URL is empty: pass one such as redis://localhost:6379/0, or omit it for the embedded server"
        )
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        # The error's own text quotes the part with the password.
        raise ConfigurationError(
            "the URL has an invalid host: percent-encode special characters in the password"
        ) from None
    known = (
        "redis",
        "rediss",
        "unix",
        "redis+sentinel",
        "rediss+sentinel",
        "redis+cluster",
        "rediss+cluster",
    )
    if parts.scheme not in known:
        what = f"unknown scheme {parts.scheme[:20]!r}" if "://" in url else "the URL has no scheme"
        raise ConfigurationError(f"{what}: use {_WELL_KNOWN}")
    return parts


def _put_login(settings: dict[str, Any], parts: SplitResult) -> None:
    login, at, _ = parts.netloc.rpartition("@")
    username, colon, password = login.partition(":")
    if at and username:
        settings["username"] = unquote(username)
    if at and colon:
        settings["password"] = unquote(password)


# Several nodes ------------------------------------------------------------------------------------------------


def _sentinels(parts: SplitResult, scheme: str) -> Sentinels:
    settings = _options(parts, _SENTINEL_OPTIONS)
    own = {
        word: settings.pop(f"sentinel_{word}")
        for word in ("username", "password")
        if f"sentinel_{word}" in settings
    }
    _put_login(settings, parts)
    addresses = _addresses(parts, _SENTINEL_PORT)
    service, _, db = unquote(parts.path).strip("/").partition("/")
    if "@" in service:
        _db(service)
    if not service:
        raise ConfigurationError(
            f"the URL of {parts.scheme}:// has no service name: add the Sentinels' name of the master, as in "
            f"{parts.scheme}://host1,host2,host3/mymaster"
        )
    if db:
        settings["db"] = _db(db)
    tls = {key: value for key, value in settings.items() if key in _TLS_OPTIONS}
    nodes = tuple(
        Endpoint(
            scheme,
            f"sentinel {_host_port(host, port)}",
            {**tls, **own, "host": host, "port": port},
            "sentinel",
        )
        for host, port in addresses
    )
    listed = ",".join(_host_port(host, port) for host, port in addresses)
    shown = f"{parts.scheme}://{listed}/{service}?db={settings.get('db', 0)}"
    return Sentinels(service, nodes, Endpoint(scheme, shown, settings, fixed=False), shown)


def _cluster(parts: SplitResult, scheme: str) -> ClusterNodes:
    settings = _options(parts, frozenset())
    _put_login(settings, parts)
    addresses = _addresses(parts, _PORT)
    path = parts.path.strip("/")
    if settings.get("db", 0) or (path and _db(path)):
        raise ConfigurationError("a cluster has only db 0: remove the db from the URL")
    settings.pop("db", None)
    model = Endpoint(scheme, "", settings, "cluster", fixed=False)
    listed = ",".join(_host_port(host, port) for host, port in addresses)
    return ClusterNodes(tuple(model.at(host, port) for host, port in addresses), f"{parts.scheme}://{listed}")


def _addresses(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    listed = parts.netloc.rpartition("@")[2]
    found: list[tuple[str, int]] = []
    if parts.path.startswith("//"):
        raise ConfigurationError(
            f"the URL of {parts.scheme}:// has a scheme inside: one scheme serves all nodes, "
            f"{parts.scheme}://host1:port,host2:port"
        )
    for text in listed.split(","):
        if not text.strip():
            raise ConfigurationError(
                f"the URL of {parts.scheme}:// has an empty address: write host1:port,host2:port"
            )
        one = urlsplit(f"//{text.strip()}")
        address = unquote(one.hostname or ""), _port(one) or default_port
        if not address[0]:
            raise ConfigurationError(
                f"the URL of {parts.scheme}:// has an address without a host: write host1:port,host2:port"
            )
        if address in found:
            raise ConfigurationError(f"the URL of {parts.scheme}:// names {_host_port(*address)} twice")
        found.append(address)
    return found


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# One node -----------------------------------------------------------------------------------------------------


def _port(parts: SplitResult) -> int | None:
    try:
        port = parts.port
    except ValueError:
        raise ConfigurationError("the port of the URL must be a number from 1 to 65535") from None
    if port == 0:
        raise ConfigurationError("the port of the URL must be 1 to 65535, got 0")
    return port


def _network(parts: SplitResult, settings: dict[str, Any]) -> str:
    if "," in parts.netloc.rpartition("@")[2]:
        raise ConfigurationError(
            f"the URL of {parts.scheme}:// has several hosts: use redis+sentinel://, redis+cluster:// or redlock://"
        )
    port = _port(parts)
    host = unquote(parts.hostname or "localhost")
    path = parts.path.strip("/")
    if path:
        settings["db"] = _db(path)
    settings["host"] = host
    settings["port"] = port or _PORT
    return f"{parts.scheme}://{_host_port(host, settings['port'])}/{settings.get('db', 0)}"


def _unix(parts: SplitResult, settings: dict[str, Any]) -> str:
    path = unquote((parts.hostname or "") + parts.path)
    if not path or path == "/":
        raise ConfigurationError("a unix:// URL needs the path of the socket: unix:///run/redis/redis.sock")
    settings["path"] = path
    return f"unix://{path}?db={settings.get('db', 0)}"


def _db(text: str) -> int:
    if "@" in text:
        raise ConfigurationError(
            "the URL has an '@' after its host: percent-encode '/', '?', '#' and '@' in the password (%2F %3F %23 %40)"
        )
    if not text.isascii() or not text.isdigit():
        raise ConfigurationError(
            f"the db of the URL must be a number, as in redis://localhost:6379/0, got {text[:40]!r}"
        )
    return int(text)


def _options(parts: SplitResult, more: frozenset[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if parts.fragment:
        raise ConfigurationError("the URL has a '#': percent-encode it as %23 if it belongs to the password")
    allowed = _KNOWN | more
    if parts.scheme.startswith("rediss"):
        allowed |= _TLS_OPTIONS
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in allowed:
            known = ", ".join(sorted(_KNOWN | more | _TLS_OPTIONS))
            raise ConfigurationError(
                f"unknown option {key[:40]!r} in the URL of {parts.scheme}://; known: {known}"
            )
        if key in settings:
            raise ConfigurationError(f"option {key!r} appears twice in the URL")
        settings[key] = _option(key, value)
    check_files(settings)
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
