"""What a multi-lock is made of: names or locks, checked and put in order, for both APIs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pawlock._described import Source
from pawlock._factory import Settings, plan_of, plan_of_key
from pawlock._hints import refuse_more
from pawlock.core.key import Key
from pawlock.core.plan import Plan
from pawlock.errors import ConfigurationError
from pawlock.primitives.multi.lease import MultiPlan

__all__ = ["multi_plan"]

_MOST_NAMES = 1000


def multi_plan(
    settings: Settings,
    client: object,
    members: object,
    given: Mapping[str, Any],
    more: tuple[object, ...] = (),
) -> tuple[MultiPlan, Source]:
    """The plan of a ``multi_lock``, and what it was made from.

    Args:
        settings: The client's.
        client: The client: locks of another one are refused.
        members: Names and locks, in any order.
        given: Options of the whole, and of the members that are given by name.
        more: What was given by position behind the members: nothing may be.

    Raises:
        ConfigurationError: No names, too many, one of them twice, or something that is neither name nor lock, or
            goes on without the server.
        TypeError: More was given by position.
    """
    if more:
        refuse_more("multi_lock", 'client.multi_lock(["…", "…"]), with the names as one list')
    if isinstance(members, (str, bytes)) or not isinstance(members, Iterable):
        raise ConfigurationError(f"multi_lock takes a list of names or locks, not {type(members).__name__}")
    options = settings.lock_options(given)
    # The client's default on_unavailable is for single locks; only one that was given here is refused below.
    for_names = {"on_unavailable": "raise", **given, "on_lost": None}
    several: tuple[object, ...] = tuple(cast("Iterable[object]", members))
    plans = [_plan_of_member(settings, client, member, for_names) for member in several]
    if not 1 <= len(plans) <= _MOST_NAMES:
        raise ConfigurationError(f"multi_lock takes 1 to {_MOST_NAMES} names, got {len(plans)}")
    plans.sort(key=lambda plan: (plan.primitive.key, plan.primitive.kind))
    names = [plan.primitive.name for plan in plans]
    keys = [plan.primitive.key for plan in plans]
    for name, key in zip(names, keys, strict=True):
        if names.count(name) > 1 or keys.count(key) > 1:
            raise ConfigurationError(f"multi_lock has {name!r} twice and would wait for itself: remove one")
    if any(plan.options.on_unavailable != "raise" for plan in plans):
        raise ConfigurationError("on_unavailable is not supported for a multi_lock: use it for single locks")
    return MultiPlan(tuple(plans), options), ("multi_lock", (several,), given)


def _plan_of_member(settings: Settings, client: object, member: object, given: Mapping[str, Any]) -> Plan:
    if isinstance(member, str):
        return plan_of(settings, "lock", member, given)
    if isinstance(member, Key):
        return plan_of_key(settings, "lock", member, given)
    if isinstance(getattr(member, "_plan", None), MultiPlan):
        raise ConfigurationError("a multi_lock cannot contain another multi_lock: pass all names to one")
    plan = getattr(member, "_plan", None)
    if not isinstance(plan, Plan):
        raise ConfigurationError(
            f"multi_lock takes names, locks and keys, got {type(member).__name__} {member!r:.60}"
        )
    if getattr(member, "_client", None) is not client:
        raise ConfigurationError(
            f"the lock of {plan.primitive.name!r} belongs to another client than the multi_lock"
        )
    return plan
