"""Metrics and spans for OpenTelemetry. Needs ``pip install "pawlock[otel]"``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, Status, StatusCode, TracerProvider
except ImportError as _missing:
    raise ImportError('pawlock.metrics.otel: run pip install "pawlock[otel]"') from _missing

from pawlock._inside import add_observer
from pawlock.metrics._shared import (
    ACQUISITIONS,
    FAULTS,
    HOLD_BUCKETS,
    LOSSES,
    POLICIES,
    QUEUE_BUCKETS,
    RELEASES,
    REQUEST_BUCKETS,
    WAIT_BUCKETS,
    kinds,
    take_snapshot,
    version,
)

if TYPE_CHECKING:
    from pawlock.aio.client import AsyncClient
    from pawlock.model import LossReason
    from pawlock.sync.client import Client

__all__ = ["instrument"]

_KIND = "pawlock.lock.kind"
_NAME = "pawlock.lock.name"
_OUTCOME = "outcome"


class _Exporter:
    """The instruments of one pair of providers, for all clients that are put into it."""

    def __init__(self, meters: MeterProvider, tracers: TracerProvider) -> None:
        self.made_for: tuple[object, object] = meters, tracers
        self.clients: WeakSet[Any] = WeakSet()
        self.known: set[str] = set()
        self.tracer = tracers.get_tracer("pawlock", version())
        meter = meters.get_meter("pawlock", version())

        def histogram(name: str, unit: str, text: str, buckets: tuple[float, ...]) -> metrics.Histogram:
            return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)

        text = "Time from calling acquire to getting the lock."
        self.wait = histogram("pawlock.lock.wait_time", "s", text, WAIT_BUCKETS)
        text = "Time from the grant to the release or loss."
        self.hold = histogram("pawlock.lock.hold_time", "s", text, HOLD_BUCKETS)
        text = "Queue length when a waiter joins, including that waiter."
        self.queue = histogram("pawlock.lock.queue_length", "{waiter}", text, QUEUE_BUCKETS)
        self.requests = histogram(
            "pawlock.backend.request.duration", "s", "Duration of requests to the server.", REQUEST_BUCKETS
        )
        text = "Acquisitions by outcome."
        self.acquisitions = meter.create_counter("pawlock.lock.acquisitions", "{acquisition}", text)
        self.contended = meter.create_counter("pawlock.lock.contended", "{grant}", "Grants that had to wait.")
        self.degraded = meter.create_counter(
            "pawlock.lock.degraded", "{grant}", "Grants in degraded mode, without the server."
        )
        self.releases = meter.create_counter("pawlock.lock.releases", "{lease}", "Ended leases by outcome.")
        self.losses = meter.create_counter(
            "pawlock.lock.lost", "{lease}", "Leases lost before their release."
        )
        self.renewals = meter.create_counter("pawlock.lock.renewals", "{renewal}", "Renewals.")
        text = "Local hand-offs inside a client."
        self.handovers = meter.create_counter("pawlock.lock.handovers", "{grant}", text)
        self.faults = meter.create_counter(
            "pawlock.backend.faults", "{request}", "Requests that failed without a script reply, by fault."
        )
        text = "Times callers gave up on a server that did not answer."
        self.outages = meter.create_counter("pawlock.backend.outages", "{outage}", text)
        self._begin()
        self._gauges(meter)

    def _begin(self) -> None:
        for fault in FAULTS:
            self.faults.add(0, {"fault": fault})
        for kind in kinds():
            self._create_end_series({_KIND: kind})

    def _create_end_series(self, of: dict[str, str]) -> None:
        for reason in LOSSES:
            self.losses.add(0, {**of, "reason": reason})
        for outcome in RELEASES:
            self.releases.add(0, {**of, _OUTCOME: outcome})
        for policy in POLICIES:
            self.degraded.add(0, {**of, "policy": policy})

    def _gauges(self, meter: metrics.Meter) -> None:
        def answer(found: Mapping[str, int]) -> Iterable[Observation]:
            # What was ever seen stays reported, with 0.
            now = {**dict.fromkeys(tuple(self.known), 0), **found}
            return [Observation(value, {_KIND: kind}) for kind, value in now.items()]

        def held(_: CallbackOptions) -> Iterable[Observation]:
            return answer(take_snapshot(list(self.clients)).held)

        def waiting(_: CallbackOptions) -> Iterable[Observation]:
            return answer(take_snapshot(list(self.clients)).waiting)

        def states(_: CallbackOptions) -> Iterable[Observation]:
            found = take_snapshot(list(self.clients)).states
            return [Observation(clients, {"state": state}) for state, clients in found.items()]

        gauge = meter.create_observable_gauge
        gauge("pawlock.locks.held", [held], "{lease}", "Leases held now.")
        gauge("pawlock.lock.waiters", [waiting], "{waiter}", "Threads and tasks waiting now.")
        gauge("pawlock.backend.clients", [states], "{client}", "Clients by connection state.")

    def of(self, kind: str) -> dict[str, str]:
        """The attributes of a kind in metrics; its series begin with 0."""
        of = {_KIND: kind}
        if kind not in self.known:
            self.known.add(kind)
            self._create_end_series(of)
            self.contended.add(0, of)
            for outcome in ACQUISITIONS:
                self.acquisitions.add(0, {**of, _OUTCOME: outcome})
        return of

    def span(self, what: str, kind: str, name: str, seconds: float, **more: str) -> Span:
        """A span of so many seconds up to now, which its caller ends; below the present one."""
        start = time.time_ns() - int(seconds * 1e9)
        return self.tracer.start_span(what, start_time=start, attributes={_KIND: kind, _NAME: name, **more})

    # As an Observer ---------------------------------------------------------------------------------------------

    def acquired(self, kind: str, name: str, *, waited: float, contended: bool, degraded: str) -> object:
        """See ``Observer``."""
        of = self.of(kind)
        self.acquisitions.add(1, {**of, _OUTCOME: "acquired"})
        self.wait.record(waited, of)
        if degraded:
            self.degraded.add(1, {**of, "policy": degraded})
        if contended:
            self.contended.add(1, of)
            self.span("pawlock.acquire", kind, name, waited, outcome="acquired").end()
        # A loss is reported in the background: it belongs where the lease was taken.
        return contexts.get_current()

    def refused(self, kind: str, name: str, *, waited: float, outcome: str) -> None:
        """See ``Observer``."""
        self.acquisitions.add(1, {**self.of(kind), _OUTCOME: outcome})
        if outcome not in ("busy", "cancelled"):
            span = self.span("pawlock.acquire", kind, name, waited, outcome=outcome)
            span.set_status(Status(StatusCode.ERROR, outcome))
            span.end()

    def queued(self, kind: str, name: str, *, place: int) -> None:  # noqa: ARG002 - see Observer
        """See ``Observer``."""
        self.queue.record(place, self.of(kind))

    def released(self, kind: str, name: str, *, held: float, outcome: str) -> None:  # noqa: ARG002 - see Observer
        """See ``Observer``."""
        of = self.of(kind)
        self.releases.add(1, {**of, _OUTCOME: outcome})
        if outcome != "lost":
            # The hold of a lost lease was over when it was lost.
            self.hold.record(held, of)

    def lost(self, kind: str, name: str, *, held: float, reason: LossReason, acquired: object) -> None:
        """See ``Observer``."""
        of = self.of(kind)
        self.losses.add(1, {**of, "reason": str(reason)})
        self.hold.record(held, of)
        context = acquired if isinstance(acquired, contexts.Context) else None
        attributes: dict[str, str | float] = {_KIND: kind, _NAME: name, "reason": str(reason), "held": held}
        span = self.tracer.start_span("pawlock.lost", context, attributes=attributes)
        span.set_status(Status(StatusCode.ERROR, str(reason)))
        span.end()

    def counted(self, what: str) -> None:
        """See ``Observer``."""
        if what in ("renewed", "renewal_failed"):
            self.renewals.add(1, {_OUTCOME: "ok" if what == "renewed" else "failed"})
        elif what == "handed_over":
            self.handovers.add(1)
        elif what == "outages":
            self.outages.add(1)

    def called(self, operation: str, *, seconds: float, fault: str) -> None:
        """See ``Observer``."""
        self.requests.record(seconds, {"operation": operation})
        if fault:
            self.faults.add(1, {"fault": fault})


_exporters: list[_Exporter] = []


def instrument(
    client: Client | AsyncClient,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """Export what a client does to OpenTelemetry: metrics, and a span for each contended acquisition and each loss.

    The span of a loss is a child of what was current when the lease was taken. Spans carry the lock's name; metrics
    never do. Instrumenting a client again with the same providers changes nothing.

    Args:
        client: The client, sync or async.
        meter_provider: Where the metrics go; None: the global one.
        tracer_provider: Where the spans go; None: the global one.
    """
    meters = metrics.get_meter_provider() if meter_provider is None else meter_provider
    tracers = trace.get_tracer_provider() if tracer_provider is None else tracer_provider
    for exporter in _exporters:
        if exporter.made_for[0] is meters and exporter.made_for[1] is tracers:
            break
    else:
        exporter = _Exporter(meters, tracers)
        _exporters.append(exporter)
    exporter.clients.add(client)
    add_observer(client, exporter)
