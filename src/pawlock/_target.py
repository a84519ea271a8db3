"""What a client connects to, from whatever the user gave."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import cast

from pawlock import embedded
from pawlock.errors import ConfigurationError, NotSupported
from pawlock.topology.credentials import Credentials
from pawlock.topology.endpoint import Endpoint, Place, Target
from pawlock.topology.places import place_of
from pawlock.topology.redlock import masters
from pawlock.topology.url import parse_target, parse_url
from pawlock.transport.handed import endpoint_of, target_of

__all__ = ["find_target", "shown_of", "state_dir_of"]


def find_target(
    target: object, credentials: Credentials | None = None, environ: Mapping[str, str] = os.environ
) -> Target:
    """What to connect to.

    Args:
        target: A URL, a client of redis-py or valkey-py (also of a cluster or of Sentinels), or None: then
            ``PAWLOCK_URL``, else the embedded server.
        credentials: What was given beside it.
        environ: The process's environment.

    Raises:
        ConfigurationError: It names nothing that could be connected to.
        NotSupported: A topology that this version does not have.
    """
    credentials = credentials or Credentials()
    if target is None:
        if "PAWLOCK_URL" not in environ:
            if reason := embedded.refuse_reason(environ):
                raise ConfigurationError(
                    f"no server URL, and the embedded server is not started automatically because {reason}: "
                    "set PAWLOCK_URL (embedded:// for a server that only this machine uses)"
                )
            return _embedded(None, credentials)
        target = environ["PAWLOCK_URL"]
        if not target.strip():
            raise ConfigurationError(
                "PAWLOCK_URL is empty: unset it, or set a URL such as redis://localhost:6379/0"
            )
        try:
            return find_target(target, credentials)
        except ConfigurationError as error:
            raise ConfigurationError(f"PAWLOCK_URL: {error.text}") from None
    if isinstance(target, str):
        if target.startswith(("embedded:", "memory:", "etcd:", "etcds:")):
            return _nearby(target, credentials)
        found = credentials.put_into(parse_target(target))
    elif isinstance(target, (list, tuple)):
        listed = cast("list[object]", target)
        found = credentials.put_into(masters([_node(number, node) for number, node in enumerate(listed, 1)]))
    else:
        found = target_of(target)
        if credentials:
            raise ConfigurationError("a Redis client has its own credentials: pass them there, or pass a URL")
    return _fixed(found) if isinstance(found, Endpoint) else found


def shown_of(target: Target | None) -> str:
    """The address of what ``find_target`` found, without credentials: equal for all clients of it."""
    return str(getattr(target, "shown", ""))


class _Fixed:
    """One server, whose address is known.

    Args:
        endpoint: Where it is.
    """

    __slots__ = ("_endpoint", "shown")

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.shown: str = endpoint.shown

    def __call__(self) -> Endpoint:
        return self._endpoint


def _fixed(endpoint: Endpoint) -> _Fixed:
    if endpoint.scheme == "unix" and not hasattr(socket, "AF_UNIX"):
        raise ConfigurationError("Python has no unix sockets on this system: use redis://")
    return _Fixed(endpoint)


class _Embedded:
    """The embedded server, which is started once it is asked for.

    Args:
        state_dir: Its folder; None: the usual one.
    """

    __slots__ = ("_state_dir", "shown")

    def __init__(self, state_dir: str | None) -> None:
        self._state_dir = state_dir
        self.shown: str = f"embedded://{state_dir or ''}"

    def __call__(self) -> Endpoint:
        return Endpoint("unix", self.shown, {"path": str(embedded.ensure(self._state_dir).socket)})


def _nearby(url: str, credentials: Credentials) -> Callable[[], Endpoint] | Place:
    if url.startswith("embedded:"):
        return _embedded(state_dir_of(url), credentials)
    if url.startswith("etcd"):
        # Half a second to import: only who uses it waits for that.
        from pawlock.etcd.address import place

        return place(url, credentials)
    return place_of(url, credentials)


def _node(number: int, target: object) -> Endpoint:
    try:
        if isinstance(target, str):
            return parse_url(target)
        if target is None or isinstance(target, (list, tuple)):
            raise ConfigurationError(f"{target!r:.40} is not the URL of one master")
        return endpoint_of(target)
    except (ConfigurationError, NotSupported) as error:
        raise ConfigurationError(f"node {number} of the list: {error.text}") from None


def state_dir_of(url: str) -> str | None:
    """The folder that an embedded URL names; None for the default."""
    rest = url.removeprefix("embedded:")
    if not rest.startswith("//"):
        raise ConfigurationError("invalid embedded URL: write embedded:// or embedded:///path/to/directory")
    path = rest[2:]
    if path and not path.startswith("/"):
        raise ConfigurationError("embedded:// needs an absolute path: embedded:///path/to/directory")
    if "?" in path or "#" in path:
        raise ConfigurationError("embedded:// takes no options")
    return path or None


def _embedded(state_dir: str | None, credentials: Credentials) -> Callable[[], Endpoint]:
    if credentials:
        raise ConfigurationError(
            "the embedded server takes no credentials: remove them (only your user can open its socket)"
        )
    embedded.check_settings(state_dir)  # a mistake in them is no outage of the server
    return _Embedded(state_dir)
