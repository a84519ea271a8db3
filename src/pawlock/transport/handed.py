"""What a client that the user passes in connects to: one server, Sentinels or a cluster. Nothing is sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from pawlock.errors import ConfigurationError, NotSupported
from pawlock.topology.endpoint import ClusterNodes, Endpoint, Sentinels, check_files

__all__ = ["endpoint_of", "target_of"]

_ADDRESS = frozenset({"host", "path", "port"})
_LOGIN = frozenset({"client_name", "credential_provider", "db", "password", "username"})
_SOCKET = frozenset({"socket_keepalive", "socket_keepalive_options", "socket_type"})


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
                "fakeredis runs no scripts of pawlock: use pawlock_sim, or pawlock.testing.Sim"
            )
    names = _names(type(client))
    if names & {"RedisCluster", "ValkeyCluster"}:
        return _cluster(client)
    if "Sentinel" in names:
        raise ConfigurationError('a Sentinel names no service: pass sentinel.master_for("service")')
    if "Sentinel" in type(pool).__name__:
        return _sentinels(pool)
    return endpoint_of(client)


def endpoint_of(client: object) -> Endpoint:
    """The one server that a client of redis-py or valkey-py leads to, sync or asyncio.

    Raises:
        ConfigurationError: It is not such a client (a pipeline, a connection, …).
        NotSupported: A cluster or Sentinel client, which is more than one server.
    """
    kind, names = type(client).__name__, _names(type(client))
    pool = getattr(client, "connection_pool", None)
    if names & {"RedisCluster", "ValkeyCluster", "ClusterPipeline"} or "Sentinel" in type(pool).__name__:
        raise NotSupported("a client of a cluster or of Sentinels is not one server")
    if names & {"Pipeline", "PubSub", "Monitor"}:
        raise ConfigurationError(f"a {kind} is not a client: pass the Redis object that created it")
    found = getattr(pool, "connection_kwargs", None)
    if pool is None or not isinstance(found, dict):
        raise ConfigurationError(
            f"cannot connect with a {kind}: pass a URL, a client of Redis or Valkey, or a list of them"
        )
    scheme = _scheme(getattr(pool, "connection_class", object))
    kept = _kept(cast("dict[str, Any]", found), scheme)
    check_files(kept)
    if "path" in kept:
        return Endpoint("unix", f"unix://{kept['path']}?db={kept.get('db', 0)}", kept)
    return Endpoint(scheme, "", kept).at(kept.get("host", "localhost"), kept.get("port", 6379))


def _cluster(client: Any) -> ClusterNodes:
    manager = getattr(client, "nodes_manager", None)
    if manager is None:
        raise ConfigurationError(f"a {type(client).__name__} without its nodes: pass one that was made")
    if getattr(manager, "address_remap", None) is not None:
        raise NotSupported("a client with address_remap is not supported: use redis+cluster://host,host")
    found: Mapping[str, Any] = manager.connection_kwargs
    scheme = "rediss" if found.get("ssl") else _scheme(found.get("connection_class"))
    model = Endpoint(scheme, "", _kept(found, scheme, _ADDRESS | {"db"}))
    # Those that it was given, and those that it found: any of them may be down when it is needed.
    known = [*_addresses(manager.startup_nodes), *_addresses(getattr(manager, "nodes_cache", {}))]
    return ClusterNodes.of(dict.fromkeys(known), model)


def _addresses(nodes: Any) -> Iterable[tuple[str, int]]:
    listed: Iterable[Any] = cast("Mapping[str, Any]", nodes).values() if isinstance(nodes, Mapping) else nodes
    return [(str(node.host), int(node.port)) for node in listed]


def _sentinels(pool: Any) -> Sentinels:
    if not pool.is_master:
        raise ConfigurationError("a client of replicas cannot hold locks: pass sentinel.master_for(…)")
    scheme = _scheme(pool.connection_class)
    model = Endpoint(scheme, "", _kept(pool.connection_kwargs, scheme, _ADDRESS))
    nodes = [endpoint_of(client) for client in pool.sentinel_manager.sentinels]
    bare = [replace(node, settings=_kept(node.settings, node.scheme, {"db"})) for node in nodes]
    return Sentinels.of(pool.service_name, bare, model)


def _kept(found: Mapping[str, Any], scheme: str, without: Collection[str] = ()) -> dict[str, Any]:
    """What pawlock takes of a client's settings: address, login and, where it speaks TLS, its options."""
    kept = {
        key: value
        for key, value in found.items()
        if value is not None
        and key not in without
        and (key in _ADDRESS | _LOGIN | _SOCKET or (scheme == "rediss" and key.startswith("ssl_")))
    }
    if not isinstance(kept.get("socket_keepalive_options", {}), Mapping):
        # redis-py's own sentinel for "the defaults".
        del kept["socket_keepalive_options"]
    return kept


def _names(cls: Any) -> set[str]:
    return {base.__name__ for base in getattr(cls, "__mro__", ())}


def _scheme(connection: object) -> str:
    return "rediss" if any("SSL" in name for name in _names(connection)) else "redis"
