"""What a client tells others about itself: its session's record, the histories of names, deadlocks."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from pawl.core.maintenance.duty import DutyCall, MaintenanceDuty, until_next_need
from pawl.core.observe.deadlock import look_for_cycles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.runtime import Fault, Reply
    from pawl.core.state.history import History, Page

__all__ = ["Deadlocks", "Histories", "SessionRecord"]


class SessionRecord(MaintenanceDuty):
    """Publishes what this client holds and waits for, and learns what an operator took from it."""

    def begin(self, engine: Engine, now: float) -> None:
        publisher = engine.reports.publisher
        if publisher is not None and publisher.published:
            engine.take_away(engine.runtime.notices())

    def due(self, engine: Engine, now: float) -> Sequence[DutyCall]:
        publisher = engine.reports.publisher
        call = None if publisher is None else publisher.due(now)
        return () if publisher is None or call is None else (DutyCall(call, publisher.answered),)

    def sleep_until(self, engine: Engine, now: float) -> float:
        return inf if engine.reports.publisher is None else engine.reports.publisher.sleep_until(now)


class Histories(MaintenanceDuty):
    """Writes who held a name and how it ended, for clients that keep histories."""

    def due(self, engine: Engine, now: float) -> Sequence[DutyCall]:
        history = engine.reports.history
        if history is None or engine.activity.closed:
            return ()
        return [
            DutyCall(page.call, partial(_written, engine, history, page)) for page in history.due(engine, now)
        ]

    def sleep_until(self, engine: Engine, now: float) -> float:
        history = engine.reports.history
        return inf if history is None or engine.activity.closed else history.sleep_until(engine, now)


def _written(engine: Engine, history: History, page: Page, outcome: Reply | Fault) -> None:
    history.answered((page,), (outcome,), engine.runtime.now())


class Deadlocks(MaintenanceDuty):
    """Looks for waits that form a circle; when the session's record is published, it is looked again."""

    async def ask(self, engine: Engine, now: float) -> bool:
        publisher = engine.reports.publisher
        if publisher is not None and publisher.waits:
            await look_for_cycles(engine, publisher, until_next_need(engine, engine.runtime.now()))
        return False
