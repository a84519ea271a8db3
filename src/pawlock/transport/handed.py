"""What a client that the user passes in connects to: one server, Sentinels or a cluster. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pawlock.errors import ConfigurationError, NotSupported
from pawlock.topology.endpoint import ClusterNodes, Endpoint, Sentinels
from pawlock.transport.connect import endpoint_of, kept_settings

__all__ = ["target_of"]


def target_of(client: object) -> Endpoint | Sentinels | ClusterNodes:
    """What a client of redis-py or valkey-py leads to, sync or asyncio; its pools and settings stay untouched.

    Raises:
        ConfigurationError: It is not such a client, or it is one that leads to replicas.
        NotSupported: A cluster client whose addresses are translated.
    """
    pool: Any = getattr(client, "connection_pool", None)
    for cls in (*type(client).__mro__, getattr(pool, "connection_class", object)):
        if cls.__module__.partition(".")[0] == "fakeredis":
            raise ConfigurationError(
                "fakeredis does not support pawlock's scripts and messages: use pawlock_sim, the fixture for pytest, "
                "or pawlock.testing.Sim, which run pawlock's own scripts without a server"
            )
    names = {cls.__name__ for cls in type(client).__mro__}
    if names & {"RedisCluster", "ValkeyCluster"}:
        return _cluster(client)
    if "Sentinel" in names:
        raise ConfigurationError(
            'a Sentinel names no service: pass sentinel.master_for("service"), or redis+sentinel://host,host/service'
        )
    if "Sentinel" in type(pool).__name__:
        return _sentinels(pool)
    return endpoint_of(client)


def _cluster(client: Any) -> ClusterNodes:
    manager = getattr(client, "nodes_manager", None)
    if manager is None:
        raise ConfigurationError(f"a {type(client).__name__} without its nodes: pass one that was made")
    if getattr(manager, "address_remap", None) is not None:
        raise NotSupported(
            "a cluster client with address_remap is not supported: use redis+cluster:// with reachable addresses"
        )
    found: Mapping[str, Any] = manager.connection_kwargs
    secure = bool(found.get("ssl")) or _is_tls(found.get("connection_class"))
    settings = {key: value for key, value in kept_settings(found, secure=secure).items() if key not in _PLACE}
    model = Endpoint("rediss" if secure else "redis", "", settings, "cluster", fixed=False)
    # Those that it was given, and those that it found: any of them may be down when it is needed.
    known = dict.fromkeys(
        [*_addresses(manager.startup_nodes), *_addresses(getattr(manager, "nodes_cache", {}))]
    )
    listed = ",".join(model.at(*address).shown.split("/")[2] for address in known)
    scheme = "rediss+cluster" if secure else "redis+cluster"
    return ClusterNodes(tuple(model.at(*address) for address in known), f"{scheme}://{listed}")


_PLACE = frozenset({"db", "host", "path", "port"})


def _addresses(nodes: Any) -> Iterable[tuple[str, int]]:
    listed: Iterable[Any] = cast("Mapping[str, Any]", nodes).values() if isinstance(nodes, Mapping) else nodes
    return [(str(node.host), int(node.port)) for node in listed]


def _sentinels(pool: Any) -> Sentinels:
    if not pool.is_master:
        raise ConfigurationError("a client of replicas cannot hold locks: pass sentinel.master_for(…)")
    secure = _is_tls(pool.connection_class)
    settings = {
        k: v for k, v in kept_settings(pool.connection_kwargs, secure=secure).items() if k not in _ADDRESS
    }
    nodes = tuple(_sentinel(client) for client in pool.sentinel_manager.sentinels)
    listed = ",".join(node.shown.removeprefix("sentinel ") for node in nodes)
    scheme = "rediss+sentinel" if secure else "redis+sentinel"
    shown = f"{scheme}://{listed}/{pool.service_name}?db={settings.get('db', 0)}"
    master = Endpoint("rediss" if secure else "redis", shown, settings, fixed=False)
    return Sentinels(pool.service_name, nodes, master, shown)


_ADDRESS = frozenset({"host", "path", "port"})


def _sentinel(client: Any) -> Endpoint:
    found = endpoint_of(client)
    where = found.shown.split("/")[2]
    settings = {key: value for key, value in found.settings.items() if key != "db"}
    return Endpoint(found.scheme, f"sentinel {where}", settings, "sentinel")


def _is_tls(connection: object) -> bool:
    return any("SSL" in cls.__name__ for cls in getattr(connection, "__mro__", ()))
