"""The plan of a quota, what stands for the factory methods of both clients, and its one entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

import pawlock
from pawlock._coordinate import literal_name, options_among
from pawlock._factory import Settings, refuse_on_quorum
from pawlock._inside import settings_of
from pawlock.core.options import LockOptions, Seconds, check_count, check_ttl, to_ms
from pawlock.primitives.registry import Entry
from tests.unit.conformance.quota import Quota
from tests.unit.conformance.quota.aio.quota import AsyncQuota
from tests.unit.conformance.quota.sync.quota import Quota as SyncQuota

__all__ = ["ENTRY", "quota"]


class QuotaKwargs(TypedDict, total=False):
    """The options of a quota."""

    timeout: Seconds | None
    unavailable_after: Seconds


class Plan(NamedTuple):
    """One quota as the operations see it."""

    primitive: Quota
    options: LockOptions


def _plan(settings: Settings, name: str, limit: int, per: Seconds, given: Mapping[str, Any]) -> Plan:
    check_count(limit, "limit", 1, 1000)
    refuse_on_quorum(settings, "quota")
    options = options_among(settings, QuotaKwargs, given)
    name, _ = literal_name(settings, name)
    return Plan(Quota(settings.namespace, name, limit, to_ms(check_ttl(per, "per"))), options)


def quota(client: Any, name: str, limit: int, *, per: Seconds = 1.0, **options: Any) -> Any:
    """A quota of this name: ``limit`` parts in each period of ``per`` seconds."""
    plan = _plan(settings_of(client), name, limit, per, options)
    shell: Any = SyncQuota if isinstance(client, pawlock.Client) else AsyncQuota
    return shell(client, plan, ("quota", (name, limit), {"per": per, **options}))


def _record(namespace: str, name: str, options: LockOptions) -> Any:
    return Quota(namespace, name)


ENTRY = Entry(
    kind="quota",
    summary="So much in each period.",
    factory=quota,
    args=(3,),
    leases=False,
    capacity=None,
    fifo=False,
    record=_record,
)
