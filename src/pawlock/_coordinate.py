"""What locks, latches, barriers, elections and ``once`` are made of: no I/O, so both APIs share it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pawlock._cancel import CancelScope
from pawlock._decorate import check_function
from pawlock._described import Source
from pawlock._environment import check_known
from pawlock._factory import (
    Settings,
    check_word,
    name_and_key,
    plan_of,
    queue_key_of,
    refuse_on_quorum,
    unfilled,
)
from pawlock.core.key import Key
from pawlock.core.options import (
    BarrierKwargs,
    LatchKwargs,
    LockOptions,
    OnceKwargs,
    Seconds,
    check_choice,
    check_count,
    check_flag,
    check_ttl,
    to_ms,
)
from pawlock.core.plan import ASKERS, Plan
from pawlock.errors import ConfigurationError
from pawlock.model import LeaseState
from pawlock.primitives.barrier import Barrier
from pawlock.primitives.barrier.operation import MAX_PARTIES
from pawlock.primitives.election import ballot
from pawlock.primitives.election.operation import Leadership, check_after
from pawlock.primitives.latch import Latch
from pawlock.primitives.latch.operation import MAX_COUNT
from pawlock.primitives.once import once

__all__ = [
    "GatePlan",
    "barrier_plan",
    "election_plan",
    "guard",
    "guard_async",
    "latch_plan",
    "literal_name",
    "lock_plan",
    "once_plan",
    "options_among",
]

_NOT_OF_ONCE: dict[str, Any] = {
    "handover": 0, "min_hold": 0, "on_unavailable": "raise", "replicas": 0,
}  # fmt: skip
_LATCH_TTL = 86400.0
_LATE = 120.0
"""Seconds beyond ``unavailable_after`` for which a request is remembered: it is tried in the background for a minute,
and a copy of it may be late on the wire."""


class GatePlan(NamedTuple):
    """One latch or barrier as the operations see it."""

    primitive: Latch | Barrier
    options: LockOptions


def lock_plan(
    settings: Settings, kind: str, name: str | Key, given: Mapping[str, Any], more: tuple[object, ...]
) -> tuple[Plan, Source]:
    """The plan of a ``lock``, ``rlock`` or ``fair_lock``, and what it was made from; see ``plan_of``."""
    return plan_of(settings, kind, name, given, more), (kind, (name,), given)


def latch_plan(
    settings: Settings, name: str, count: int, given: Mapping[str, Any]
) -> tuple[GatePlan, Source]:
    """The plan of a ``latch``, and what it was made from.

    Raises:
        ConfigurationError: A name, count or option that can never work.
    """
    check_count(count, "count", 1, MAX_COUNT)
    refuse_on_quorum(settings, "latch")
    options = options_among(settings, LatchKwargs, {"ttl": _LATCH_TTL, **given})
    remember_ms = to_ms(options.unavailable_after + _LATE)
    named, lives = literal_name(settings, name), (options.ttl_ms, options.ticket_ms, remember_ms)
    latch = Latch(*named, count, *lives, options.max_waiters)
    return GatePlan(latch, options), ("latch", (name, count), given)


def barrier_plan(
    settings: Settings, name: str, parties: int, given: Mapping[str, Any]
) -> tuple[GatePlan, Source]:
    """The plan of a ``barrier``, and what it was made from.

    Raises:
        ConfigurationError: A name, number of parties or option that can never work.
    """
    check_count(parties, "parties", 1, MAX_PARTIES)
    refuse_on_quorum(settings, "barrier")
    options = options_among(settings, BarrierKwargs, given)
    barrier = Barrier(*literal_name(settings, name), parties, options.ticket_ms)
    return GatePlan(barrier, options), ("barrier", (name, parties), given)


def election_plan(
    settings: Settings, name: str, identity: str | None, given: Mapping[str, Any]
) -> tuple[Plan, Source]:
    """The plan of an ``election``, and what it was made from.

    Raises:
        ConfigurationError: A name, identity or option that can never work.
    """
    if given.get("handover", 0) != 0:
        raise ConfigurationError("an election has no local hand-off: omit handover")
    if given.get("on_unavailable", "raise") != "raise":
        raise ConfigurationError("an election has no degraded mode: omit on_unavailable")
    refuse_on_quorum(settings, "election")
    options = settings.lock_options({**given, "handover": 0})
    source = ("election", (name,), {"identity": identity, **given})
    primitive = ballot(settings.namespace, literal_name(settings, name)[0], options)
    shown = "" if identity is None else check_word(identity, "identity")
    waiting = queue_key_of(primitive, options, shown)
    return Plan(primitive, options, False, False, ASKERS, waiting, shown), source


def once_plan(
    settings: Settings, name: str, keep: Seconds, wait: object, given: Mapping[str, Any]
) -> tuple[Plan, Source]:
    """The plan of a ``once``, and what it was made from.

    Raises:
        ConfigurationError: A name or option that can never work.
        NotSupported: The client has independent masters.
    """
    check_known(given, OnceKwargs.__annotations__)
    refuse_on_quorum(settings, "once")
    # The client's defaults for locks do not apply here.
    options = settings.lock_options({**given, **_NOT_OF_ONCE})
    check_ttl(keep, "keep")
    check_flag(wait, "wait")
    source = ("once", (name,), {"keep": keep, "wait": wait, **given})
    found = name_and_key(settings, name)
    if found is None:
        return unfilled("once", name, options), source
    primitive = once(settings.namespace, found[0], options)
    return Plan(primitive, options, False, False, ASKERS, queue_key_of(primitive, options)), source


def literal_name(settings: Settings, name: object) -> tuple[str, str]:
    """The name that a text without fields stands for, and its key.

    Raises:
        ConfigurationError: It can never be a name, or has fields.
    """
    found = name_and_key(settings, name)
    if found is None:
        raise ConfigurationError(
            f"name {name!r} has a field, and nothing fills it here: write {{{{ for a literal brace"
        )
    return found


def options_among(settings: Settings, known: type, given: Mapping[str, Any]) -> LockOptions:
    """The options of what is no lock: of the client's defaults, only how long to wait applies.

    Args:
        settings: Those of the client.
        known: The ``…Kwargs`` that names the options it has.
        given: What was given.

    Raises:
        ConfigurationError: An unknown option, or a value that can never work.
    """
    check_known(given, known.__annotations__)
    passed_on = ("timeout", "unavailable_after", "request_timeout", "connect_timeout")
    defaults = {name: getattr(settings.options, name) for name in passed_on}
    return LockOptions(**{**defaults, **given})


# What only the leader may do ----------------------------------------------------------------------------------------


def guard(leadership: Leadership, function: Callable[..., Any] | None, on_follower: str) -> Any:
    """The decorator ``leader_only`` of threads, or the decorated function if it was given at once."""
    return _guard(leadership, function, on_follower, _call_checked)


def guard_async(leadership: Leadership, function: Callable[..., Any] | None, on_follower: str) -> Any:
    """The decorator ``leader_only`` of asyncio: a loss also cancels a coroutine that runs under it."""
    return _guard(leadership, function, on_follower, _call_cancelled)


def _guard(
    leadership: Leadership,
    function: Callable[..., Any] | None,
    on_follower: str,
    call_async: Callable[..., Any],
) -> Any:
    check_choice(on_follower, "on_follower", ("raise", "skip"))
    if function is None:
        return functools.partial(_guard, leadership, on_follower=on_follower, call_async=call_async)
    check_function(function)
    wanted = leadership.leading if on_follower == "raise" else leadership.lease

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            lease = wanted()
            return None if lease is None else await call_async(lease, function, args, kwargs)

        return guarded_async

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        lease = wanted()
        if lease is None:
            return None
        result = function(*args, **kwargs)
        if lease.state is LeaseState.LOST:
            lease.check()
        return result

    return guarded


async def _call_checked(
    lease: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    result = await function(*args, **kwargs)
    await check_after(lease, None)
    return result


async def _call_cancelled(
    lease: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    CancelScope.enter(lease)
    try:
        result = await function(*args, **kwargs)
    except BaseException as error:
        await CancelScope.leave(lease, error, check_after)
        raise
    await CancelScope.leave(lease, None, check_after)
    return result
