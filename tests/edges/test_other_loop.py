"""An asyncio lease belongs to the event loop in which it was acquired."""

from __future__ import annotations

import asyncio
import threading

import pytest

import pawl
from pawl.testing.servers import Server


def test_another_loop_is_refused_and_changes_nothing(server: Server) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def there(step: object) -> object:
        return asyncio.run_coroutine_threadsafe(step, loop).result(10)  # type: ignore[arg-type]  # a coroutine

    try:
        client = pawl.connect_async(server.url)

        async def acquire() -> pawl.AsyncLease:
            return await client.lock("x").acquire()

        lease = there(acquire())
        assert isinstance(lease, pawl.AsyncLease)
        with pytest.raises(pawl.NotSupported, match="another event loop"):
            asyncio.run(lease.release())
        with pytest.raises(pawl.NotSupported, match="another event loop"):
            asyncio.run(lease.extend(60))
        assert lease.state == "held"
        assert server.command("EXISTS", "pawl:x") == 1
        there(lease.release())
        there(client.close())
        assert server.command("EXISTS", "pawl:x") == 0
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
