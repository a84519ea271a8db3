"""What is taken of a client of Sentinels or of a cluster that the user hands over."""

from __future__ import annotations

from typing import Any

import redis.asyncio
import redis.sentinel

from pawlock.topology.endpoint import ClusterNodes, Sentinels
from pawlock.transport.handed import target_of


def test_logins_and_tls_come_along_and_are_not_shown() -> None:
    sentinel = redis.sentinel.Sentinel(
        [("h1", 26379), ("h2", 26380)],
        sentinel_kwargs={"password": "outer"},
        username="u",
        password="inner",
        db=2,
        ssl=True,
        ssl_ca_certs="/ca.pem",
    )
    made: Any = sentinel
    found = target_of(made.master_for("mymaster"))
    assert isinstance(found, Sentinels)
    assert found.shown == "rediss+sentinel://h1:26379,h2:26380/mymaster?db=2"
    assert found.master.settings == {
        "username": "u", "password": "inner", "db": 2, "ssl_ca_certs": "/ca.pem",
        **{k: v for k, v in found.master.settings.items() if k.startswith("ssl_")},
    }  # fmt: skip
    assert [node.settings["port"] for node in found.sentinels] == [26379, 26380]
    assert [node.settings.get("password") for node in found.sentinels] == ["outer", "outer"]
    cluster = target_of(redis.asyncio.RedisCluster(host="h", port=7000, password="inner", ssl=True))
    assert isinstance(cluster, ClusterNodes)
    assert cluster.nodes[0].scheme == "rediss"
    assert cluster.nodes[0].mode == "cluster"
    assert cluster.nodes[0].settings["password"] == "inner"
    for shown in (repr(found), repr(cluster)):
        assert "inner" not in shown
        assert "outer" not in shown
