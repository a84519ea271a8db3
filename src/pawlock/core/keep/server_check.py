"""Checks of a server's settings and uptime."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pawlock.core.protocol.runtime import Fault
from pawlock.errors import BackendUnavailable, NotSupported
from pawlock.preflight.server import Severity, check_server, facts_of_info, fields_of, number_of

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.preflight.server import Finding

__all__ = ["look", "must_hold", "must_remember"]

_PATIENCE = 0.5

log: logging.Logger = logging.getLogger("pawlock.preflight")


async def _broken(engine: Engine, most: float) -> list[Finding] | None:
    """What the server itself says that breaks a promise; None if it did not answer."""
    probe = engine.health.probe
    if probe is None:
        return []
    outcome = (await engine.runtime.call_many([probe()], min(most, _PATIENCE)))[0]
    if isinstance(outcome, Fault):
        return None
    facts = facts_of_info(fields_of(outcome.info))
    return [finding for finding in check_server(facts) if finding.severity is Severity.ERROR]


async def look(engine: Engine, most: float) -> None:
    """Warn of what breaks a guarantee on the server of this client, in at most ``most`` seconds."""
    for finding in await _broken(engine, most) or ():
        log.warning(
            "%s: %s; fix: %s", finding.check, finding.text, finding.fix,
            extra={"pawlock_check": finding.check, "pawlock_promise": finding.promise},
        )  # fmt: skip


async def must_hold(engine: Engine, name: str) -> None:
    """Refuse a server that breaks a promise, for a client that is ``strict``; asked once.

    Raises:
        NotSupported: It does; the text says which, and what to do.
    """
    findings = await _broken(engine, _PATIENCE)
    if findings is None:
        # Unreachable: the acquisition itself says so, and the next one looks again.
        return
    for finding in findings:
        text = f"acquire {name!r}: strict=True, and this server does not guarantee {finding.promise}: {finding.text}"
        raise NotSupported(f"{text}; {finding.fix}", name=name)
    engine.health.strict = False


async def must_remember(engine: Engine, primitive: Primitive, since: float) -> None:
    """Refuse a server that may have restarted without its data since then, or that does not say.

    Args:
        engine: The client's engine.
        primitive: Whose server is asked.
        since: A time of the client's clock.

    Raises:
        BackendUnavailable: It may have.
    """
    if engine.health.probe is None or engine.quorum is not None:
        # Nothing to ask, or masters of which a majority votes: see ``QuorumRuntime.remembers``.
        return
    # Of a cluster it is the node of this key that counts.
    probe = engine.health.probe
    (outcome,) = await engine.runtime.call_many([probe(key=primitive.key)], _PATIENCE)
    info = "" if isinstance(outcome, Fault) else outcome.info
    # It counts whole seconds, from the whole second in which it started.
    uptime = number_of(fields_of(info).get("uptime_in_seconds"))
    if uptime is None or uptime - 1 < engine.runtime.now() - since:
        name = primitive.name
        text = f"release {name!r}: it is no longer held, and the server may have restarted without its data"
        raise BackendUnavailable(text, name=name)
