"""Orders over HTTP: 201 sold, 409 sold out, 423 somebody else has the product for too long, 503 no lock server."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

import pawlock
from tests.nightly.apps.shop.cron import scheduler
from tests.nightly.apps.shop.database import Order, Stock, engine
from tests.nightly.apps.shop.locks import async_locks, locks

database = engine()


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    scheduler.start()
    yield
    scheduler.shutdown()
    await async_locks.close()
    locks.close()


app = FastAPI(lifespan=lifespan)


@app.exception_handler(pawlock.AcquireTimeout)
async def busy(_request: Request, error: pawlock.AcquireTimeout) -> JSONResponse:
    return JSONResponse({"code": error.code}, 423, {"Retry-After": "1"})


@app.exception_handler(pawlock.BackendError)
async def no_lock_server(_request: Request, error: pawlock.BackendError) -> JSONResponse:
    return JSONResponse({"code": error.code}, 503, {"Retry-After": "5"})


@app.post("/orders/{product}", status_code=201)
def order(product: str, slow: float = 0.0) -> JSONResponse:
    """Sell one: in a thread of the server's pool, under the lock of the product."""
    with locks.lock(f"stock:{product}", timeout=20) as lease, Session(database) as session:
        stock = session.get_one(Stock, product)
        left = stock.left
        time.sleep(slow)  # whatever the shop does between reading and writing
        if left == 0:
            return JSONResponse({"left": 0}, 409)
        Stock.write(session, lease, Stock.product == product, left=left - 1)
        session.add(Order(product=product, token=lease.fence))
        session.commit()
        return JSONResponse({"left": left - 1, "token": lease.fence, "worker": os.getpid()}, 201)


@app.post("/exports/{product}")
async def export(product: str, timeout: float = 0.2) -> dict[str, int]:
    """Asyncio beside the threads: the same name, so it waits for an order that is under way."""
    async with async_locks.lock(f"stock:{product}").acquire(timeout=timeout) as lease:
        return {"token": lease.fence, "worker": os.getpid()}
