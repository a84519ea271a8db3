"""The bare framework: one route that does nothing."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

app = FastAPI(docs_url=None, redoc_url=None)


@app.post("/noop")
async def noop() -> dict[str, bool]:
    """Do nothing."""
    return {"ok": True}


def main() -> None:
    """Serve it on the port that was given, as fast as uvicorn does by itself."""
    uvicorn.run(
        app, port=int(sys.argv[1]), log_level="warning", access_log=False, http="httptools", loop="uvloop"
    )


if __name__ == "__main__":
    main()
