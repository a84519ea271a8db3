"""Liveness and readiness; also on a separate port, for probes without a client certificate."""

from __future__ import annotations

from fastapi import FastAPI, Response

from pawlock.core.faults import to_error
from pawlock.core.runtime import Fault
from pawlock.service import schemas
from pawlock.service.problems import Problem, answer_problem, problem_of
from pawlock.service.requests import State, answer

__all__ = ["add_health", "create_probes"]


async def _ready(state: State) -> Response:
    if state.draining:
        raise Problem(503, "DRAINING", "shutting down")
    space = state.spaces.of("pawlock")
    # Once, within a second: who asks this asks again soon.
    question = space.primitive("lock", "readyz").inspect(0)
    (outcome,) = await space.engine.runtime.call_many((question,), space.engine.within(1.0))
    if isinstance(outcome, Fault):
        problem = problem_of(to_error(outcome, "pawlock", "check the server"))
        # Whatever is wrong there: nobody is to be sent here.
        problem.status = 503
        raise problem
    return answer({"ready": True})


def add_health(app: FastAPI, state: State) -> None:
    """Add ``/healthz`` and ``/readyz``, which need no token."""
    alive = {"responses": schemas.success("alive:flag")}
    ready = {"responses": {**schemas.success("ready:flag"), **schemas.problems(503)}}

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", tags=["health"], summary="Liveness check", openapi_extra=alive)
    async def healthz() -> Response:
        """200 as long as the process responds."""
        return answer({"alive": True})

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", tags=["health"], summary="Readiness check", openapi_extra=ready)
    async def readyz() -> Response:
        """200 while it takes requests and the server behind it answers, else 503."""
        return await _ready(state)


def create_probes(state: State) -> FastAPI:
    """An application with these two alone."""
    app = FastAPI(openapi_url=None)
    app.add_exception_handler(Problem, answer_problem)
    add_health(app, state)
    return app
