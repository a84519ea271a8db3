"""From a list of addresses to the nodes of a Redlock. Every mistake is reported before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from pawlock.errors import ConfigurationError
from pawlock.topology.endpoint import Endpoint, Masters

__all__ = ["is_redlock", "masters", "quorum_warning", "split_url"]


def split_url(url: str) -> list[str]:
    """The node URLs in ``redlock://a:6379,b:6379,c:6379/0`` (``rediss+redlock://`` for TLS).

    Login, database and options that stand once are those of every node.

    Raises:
        ConfigurationError: No node is named.
    """
    scheme, _, rest = url.partition("://")
    inner = "rediss" if scheme.startswith("rediss") else "redis"
    hosts, slash, path = rest.partition("/")
    if not slash and "?" in hosts:
        hosts, _, query = hosts.partition("?")
        path, slash = f"?{query}", "/"
    login, at, hosts = hosts.rpartition("@")
    named = [host.strip() for host in hosts.split(",") if host.strip()]
    if not named:
        raise ConfigurationError(f"{scheme}:// has no host: write redlock://host1:6379,host2:6379,host3:6379")
    return [f"{inner}://{login}{at}{host}{slash}{path}" for host in named]


def is_redlock(url: str) -> bool:
    """Whether a URL names independent masters."""
    return url.strip().partition("://")[0] in ("redlock", "rediss+redlock")


def masters(nodes: Sequence[Endpoint]) -> Masters:
    """Several masters as one target.

    Raises:
        ConfigurationError: There is none, or one of them stands there twice.
    """
    if not nodes:
        raise ConfigurationError("the list of masters is empty: pass three or five independent ones")
    if {"redis", "rediss"} <= {node.scheme for node in nodes}:
        raise ConfigurationError(
            "some masters use TLS and some do not, which would send tokens unencrypted: "
            "use rediss:// for all masters, or redis:// for all"
        )
    shown = [node.shown for node in nodes]
    for one in shown:
        if shown.count(one) > 1:
            raise ConfigurationError(f"{one} is listed twice: list each server once")
    return Masters(tuple(nodes), ", ".join(shown))


def quorum_warning(count: int) -> str | None:
    """What to warn of in a quorum of ``count`` masters; None: nothing."""
    if count == 1:
        return (
            "one master is not a quorum: pass its URL instead of a list, which is faster and has a FIFO queue"
        )
    if count == 2:
        return "two masters tolerate no failure, since both are needed for a majority: use three"
    if count % 2 == 0:
        return (
            f"{count} masters tolerate no more failures than {count - 1}, and votes can split evenly: "
            f"use {count - 1} or {count + 1}"
        )
    return None
