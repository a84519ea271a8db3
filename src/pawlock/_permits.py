"""What a semaphore and an rwlock are made of: no I/O, so both APIs share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pawlock._described import Source
from pawlock._factory import (
    Settings,
    name_and_key,
    queue_key_of,
    refuse_on_quorum,
    unfilled,
)
from pawlock._hints import refuse_more
from pawlock.core.options import check_count
from pawlock.core.plan import ASKERS, Plan
from pawlock.core.retry import query
from pawlock.errors import ConfigurationError
from pawlock.primitives.permits import reader, semaphore, writer

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.primitives.permits import Permits

__all__ = [
    "change_limit",
    "check_permits",
    "plan_for_permits",
    "plan_of_semaphore",
    "plans_of_rwlock",
]

_MOST_PERMITS = 1_000_000_000


def plan_of_semaphore(
    settings: Settings, name: str, permits: int, given: Mapping[str, Any], more: tuple[object, ...] = ()
) -> tuple[Plan, Source]:
    """The plan of a ``semaphore``, for one permit, and what it was made from.

    ``more`` is what was given by position, which nothing may be.

    Raises:
        ConfigurationError: A name, number or option that can never work.
    """
    if more:
        refuse_more("semaphore", f'client.semaphore("…", permits={permits!r:.20}, ttl=…, timeout=…)')
    check_permits(permits)
    _refuse_mutex_options("semaphore", given)
    refuse_on_quorum(settings, "semaphore")
    options = settings.lock_options({**_NOT_FOR_PERMITS, **given})
    source = ("semaphore", (name,), {"permits": permits, **given})
    found = name_and_key(settings, name)
    if found is None:
        return unfilled("semaphore", name, options), source
    permit = semaphore(settings.namespace, found[0], options, permits)
    # Each acquisition counts by itself, also of one thread: nothing is re-entered.
    return Plan(permit, options, False, True, ASKERS, queue_key_of(permit, options)), source


def plans_of_rwlock(
    settings: Settings, name: str, given: Mapping[str, Any]
) -> tuple[tuple[Plan, Plan], Source]:
    """The plans of the two sides of an ``rwlock``, to read and to write, and what they were made from.

    Raises:
        ConfigurationError: A name or option that can never work.
    """
    _refuse_mutex_options("rwlock", given)
    refuse_on_quorum(settings, "rwlock")
    options = settings.lock_options({**_NOT_FOR_PERMITS, **given})
    source = ("rwlock", (name,), given)
    found = name_and_key(settings, name)
    if found is None:
        return (unfilled("rwlock.read", name, options), unfilled("rwlock.write", name, options)), source
    sides = [side(settings.namespace, found[0], options) for side in (reader, writer)]
    plans = [Plan(one, options, True, False, ASKERS, queue_key_of(one, options)) for one in sides]
    return (plans[0], plans[1]), source


def check_permits(permits: object, what: str = "permits") -> int:
    """How many permits there are.

    Raises:
        ConfigurationError: It is no int, or less than 1.
    """
    return check_count(permits, what, 1, _MOST_PERMITS)


def plan_for_permits(plan: Plan, n: object) -> Plan:
    """The plan for ``n`` permits at once.

    Raises:
        ConfigurationError: It is no int, less than 1, or more than there are.
    """
    if type(n) is int and n == 1:
        return plan
    primitive = cast("Permits", plan.primitive)
    check_count(n, "n", 1, primitive.permits)
    return replace(plan, primitive=primitive.of(primitive.kind, str(n)))


async def change_limit(engine: Engine, plan: Plan, permits: object) -> None:
    """Change how many permits there are; see ``Semaphore.set_limit``."""
    limit = check_permits(permits)
    primitive = cast("Permits", plan.primitive)
    engine.check_open(primitive.name)
    await query(engine, primitive.limit(limit), plan.options, primitive.name, "set_limit")


_NOT_FOR_PERMITS: Mapping[str, Any] = {"handover": 64}
"""Defaults of a client that do not apply to permits."""


def _refuse_mutex_options(kind: str, given: Mapping[str, Any]) -> None:
    if "handover" in given:
        raise ConfigurationError(
            f"a {kind} has no local hand-off, since each holder has its own lease: omit handover"
        )
