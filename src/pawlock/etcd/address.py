"""From a URL to the members of an etcd cluster, and to the runtimes that use them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from pawlock.errors import ConfigurationError, NotSupported
from pawlock.topology.endpoint import Endpoint, Masters, Place
from pawlock.topology.redlock import masters, split_url
from pawlock.topology.url import parse_url

if TYPE_CHECKING:
    from pawlock.topology.credentials import Credentials

__all__ = ["members", "place"]

_PORT = 2379
_LACKS = frozenset({"Key", "latch", "barrier", "once"})


def place(url: str, credentials: Credentials) -> Place:
    """What ``etcd://[user:password@]host[:port][,host[:port]…]`` names; ``etcds://`` for TLS.

    Args:
        url: The URL; the options behind ``?`` are those of ``rediss://``.
        credentials: What was given beside it.

    Raises:
        ConfigurationError: It is no such URL.
        NotSupported: What it needs is not installed.
    """
    target = members(url)
    nodes = [cast("Endpoint", credentials.put_into(node)) for node in target.nodes]
    try:
        from pawlock.etcd.doctor import examine
        from pawlock.etcd.requests import LEAST_TTL, Book
        from pawlock.etcd.runtimes import EtcdTasks, EtcdThreads
    except ImportError as error:
        raise NotSupported(f"etcd needs aiohttp ({error}): pip install pawlock[etcd]") from None
    book = Book()
    threads, tasks = partial(EtcdThreads, nodes, book), partial(EtcdTasks, nodes, book)
    return Place(target.shown, threads, tasks, partial(examine, nodes), LEAST_TTL, _LACKS)


def members(url: str) -> Masters:
    """The members that a URL names, each with how to log in.

    Raises:
        ConfigurationError: It is no such URL.
    """
    scheme, _, rest = url.strip().partition("://")
    if not rest:
        raise ConfigurationError(f"{scheme}:// has no host: write etcd://host1:2379,host2:2379,host3:2379")
    inner = {"etcd": "redlock", "etcds": "rediss+redlock"}[scheme]
    nodes = [parse_url(_with_port(node)) for node in split_url(f"{inner}://{rest}")]
    if any(node.settings.get("db") for node in nodes):
        raise ConfigurationError(f"etcd has no databases: remove what follows the last host of {scheme}://")
    nodes = [replace(node, scheme=scheme, shown=node.shown.split("/")[2]) for node in nodes]
    return Masters(masters(nodes).nodes, f"{scheme}://{','.join(node.shown for node in nodes)}")


def _with_port(url: str) -> str:
    """The URL of one member, with etcd's port where it names none."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if not slash:
        host, mark, query = host.partition("?")
        path = mark + query
    has_port = ":" in host.rpartition("@")[2].rpartition("]")[2]
    return f"{scheme}://{host}{'' if has_port else f':{_PORT}'}/{path}"
