"""What pawlock asks of redis-py, whose connections it uses."""

import redis
import redis.asyncio

from pawlock.topology.endpoint import Endpoint
from pawlock.transport.connect import _make


def test_row_03_the_redis_client_makes_no_retries() -> None:
    endpoint = Endpoint("redis", "redis://x", {"host": "127.0.0.1", "port": 1})
    for module in (redis, redis.asyncio):
        made = _make(module, endpoint, 0.5)
        assert made.retry.get_retries() == 0
        assert made.socket_timeout == made.socket_connect_timeout == 0.5
