"""The bare framework: one route that does nothing, served by uvicorn as `pawl serve` is served."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

from pawl.service.runner import Listening

app = FastAPI(docs_url=None, redoc_url=None)


@app.post("/noop")
async def noop() -> dict[str, bool]:
    """Do nothing."""
    return {"ok": True}


def main() -> None:
    """Serve it on the port that was given, with the settings of the service."""
    listening = Listening("127.0.0.1", int(sys.argv[1]))
    uvicorn.Server(listening.config(app)).run()


if __name__ == "__main__":
    main()
