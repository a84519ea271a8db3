"""An application whose workers take notes of every payment that they begin and end."""

import asyncio
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI

import pawlock
from pawlock.integrations import asgi

client = pawlock.connect_async(ttl=2)
app = FastAPI()


def caller(scope: MutableMapping[str, Any]) -> str:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    return headers.get(b"authorization", b"").decode()


app.add_middleware(asgi.Idempotency, client=client, caller=caller)


def note(*words: object) -> None:
    """One line, whole even if several processes write at once."""
    with Path(os.environ["NOTES"]).open("ab", buffering=0) as notes:
        notes.write(f"{' '.join(map(str, words))}\n".encode())


@app.post("/payments/{number}")
async def pay(number: int, seconds: float = 0.2) -> dict[str, int]:
    note("begin", number, os.getpid())
    await asyncio.sleep(seconds)
    note("end", number, os.getpid())
    return {"number": number, "process": os.getpid()}


@app.get("/")
async def alive() -> int:
    return os.getpid()
