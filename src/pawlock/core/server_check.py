"""Checks of a server's settings and uptime."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pawlock.core.runtime import Fault
from pawlock.errors import BackendUnavailable
from pawlock.model import Severity
from pawlock.preflight.server import check_server, facts_of_info, fields_of, number_of

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.primitive import Primitive

__all__ = ["look", "must_remember"]

_PATIENCE = 0.5

log: logging.Logger = logging.getLogger("pawlock.preflight")


async def look(engine: Engine, most: float) -> None:
    """Warn of what breaks a guarantee on the server of this client, in at most ``most`` seconds."""
    if engine.health.probe is None:
        return
    most = min(most, engine.within(_PATIENCE))
    (outcome,) = await engine.background.call_many([engine.health.probe()], most)
    info = "" if isinstance(outcome, Fault) else outcome.info
    for finding in check_server(facts_of_info(fields_of(info))) if info else ():
        if finding.severity is Severity.ERROR:
            more = {"pawlock_check": finding.check, "pawlock_promise": finding.promise}
            said = "%s: %s; fix: %s", finding.check, finding.text, finding.fix
            engine.runtime.run_in_owner(partial(log.warning, *said, extra=more))


async def must_remember(engine: Engine, primitive: Primitive, since: float) -> None:
    """Refuse a server that may have restarted without its data since then, or that does not say.

    Args:
        engine: The client's engine.
        primitive: Whose server is asked.
        since: A time of the client's clock.

    Raises:
        BackendUnavailable: It may have.
    """
    if engine.health.probe is None:
        return
    # Of a cluster it is the node of this key that counts.
    probe = engine.health.probe(key=primitive.key)
    (outcome,) = await engine.runtime.call_many([probe], engine.within(_PATIENCE))
    info = "" if isinstance(outcome, Fault) else outcome.info
    # It counts whole seconds, from the whole second in which it started.
    uptime = number_of(fields_of(info).get("uptime_in_seconds"))
    if uptime is None or uptime - 1 < engine.runtime.now() - since:
        name = primitive.name
        text = f"release {name!r}: it is no longer held, and the server may have restarted without its data"
        raise BackendUnavailable(text, name=name)
