"""An application whose workers elect one that tells a witness of every step, and whose requests take a lock."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI, Request

import pawlock
from pawlock.integrations import asgi

client = pawlock.connect_async(ttl=2)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, str]]:
    yield {"set_up": "by the application"}
    await client.close()


async def work(lease: pawlock.AsyncLease) -> None:
    """One step every 20 ms, each sent to the witness with the fencing token, as to any guarded resource."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as witness:
        witness.connect(os.environ["WITNESS"])
        while True:
            lease.check()
            witness.send(json.dumps([os.getpid(), lease.fence]).encode())
            await asyncio.sleep(0.02)


app = FastAPI(lifespan=asgi.leader(client, "worker", work, lifespan=lifespan))


@app.get("/set-up")
def set_up(request: Request) -> dict[str, str]:
    return {"set_up": request.state.set_up, "process": str(os.getpid())}


@app.post("/orders/{id}", dependencies=[Depends(asgi.lock(client, "order:{id}", timeout=20))])
async def order(id: int, request: Request) -> dict[str, int]:  # noqa: A002
    await asyncio.sleep(0.01)
    return {"id": id, "fence": request.state.fence}
