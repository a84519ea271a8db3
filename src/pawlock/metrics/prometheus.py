"""Metrics for Prometheus. Needs ``pip install "pawlock[prometheus]"``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as _missing:
    raise ImportError('pawlock.metrics.prometheus: run pip install "pawlock[prometheus]"') from _missing

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
    Snapshot,
    kinds,
    take_snapshot,
    version,
)

if TYPE_CHECKING:
    from pawlock.aio.client import AsyncClient
    from pawlock.model import LossReason
    from pawlock.sync.client import Client

__all__ = ["instrument"]

_COUNTED = {"renewed": "ok", "renewal_failed": "failed"}


class _Exporter:
    """The metrics of one registry, for all clients that are put into it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.clients: WeakSet[Any] = WeakSet()
        self.known: set[str] = set()
        self._histograms(registry)
        self._counters(registry)
        for kind in kinds():
            self._create_end_series(kind)
        registry.register(_Gauges(self))

    def _histograms(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        self.wait = histogram(
            "pawlock_lock_wait_seconds",
            "Time from calling acquire to getting the lock, in seconds.",
            ("kind",),
            WAIT_BUCKETS,
        )
        self.hold = histogram(
            "pawlock_lock_hold_seconds",
            "Time from the grant to the release or loss, in seconds.",
            ("kind",),
            HOLD_BUCKETS,
        )
        self.queue = histogram(
            "pawlock_lock_queue_length", "Queue length when a waiter joins, including that waiter.",
            ("kind",), QUEUE_BUCKETS,
        )  # fmt: skip
        self.requests = histogram(
            "pawlock_backend_request_duration_seconds",
            "Duration of requests to the server, in seconds.",
            ("operation",),
            REQUEST_BUCKETS,
        )

    def _counters(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: tuple[str, ...]) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self.acquisitions = counter(
            "pawlock_lock_acquisitions", "Acquisitions by outcome.", ("kind", "outcome")
        )
        self.contended = counter("pawlock_lock_contended", "Grants that had to wait.", ("kind",))
        self.degraded = counter(
            "pawlock_lock_degraded", "Grants in degraded mode, without the server.", ("kind", "policy")
        )
        self.releases = counter("pawlock_lock_releases", "Ended leases by outcome.", ("kind", "outcome"))
        self.losses = counter("pawlock_lock_lost", "Leases lost before their release.", ("kind", "reason"))
        self.renewals = counter("pawlock_lock_renewals", "Renewals.", ("outcome",))
        self.handovers = counter(
            "pawlock_lock_handovers", "Local hand-offs inside a client, without the server.", ()
        )
        self.faults = counter(
            "pawlock_backend_faults", "Requests that failed without a script reply, by fault.", ("fault",)
        )
        self.outages = counter(
            "pawlock_backend_outages", "Times callers gave up on a server that did not answer.", ()
        )
        for outcome in _COUNTED.values():
            self.renewals.labels(outcome)
        for fault in FAULTS:
            self.faults.labels(fault)

    def _create_end_series(self, kind: str) -> None:
        for reason in LOSSES:
            self.losses.labels(kind, reason)
        for outcome in RELEASES:
            self.releases.labels(kind, outcome)
        for policy in POLICIES:
            self.degraded.labels(kind, policy)

    def begin(self, kind: str) -> None:
        """Create the series of a kind with 0 when it is first used."""
        if kind not in self.known:
            self.known.add(kind)
            self._create_end_series(kind)
            self.contended.labels(kind)
            for outcome in ACQUISITIONS:
                self.acquisitions.labels(kind, outcome)

    def snapshot(self) -> Snapshot:
        """The state of the clients; every kind that was ever seen stays, with 0."""
        found = take_snapshot(list(self.clients))
        for kind in tuple(self.known):
            found.held.setdefault(kind, 0)
            found.waiting.setdefault(kind, 0)
        return found

    # As an Observer ---------------------------------------------------------------------------------------------

    def acquired(self, kind: str, name: str, *, waited: float, contended: bool, degraded: str) -> object:  # noqa: ARG002 - see Observer
        """See ``Observer``."""
        self.begin(kind)
        self.acquisitions.labels(kind, "acquired").inc()
        self.wait.labels(kind).observe(waited, _exemplar())
        if contended:
            self.contended.labels(kind).inc()
        if degraded:
            self.degraded.labels(kind, degraded).inc()
        return None

    def refused(self, kind: str, name: str, *, waited: float, outcome: str) -> None:  # noqa: ARG002 - see Observer
        """See ``Observer``."""
        self.begin(kind)
        self.acquisitions.labels(kind, outcome).inc()

    def queued(self, kind: str, name: str, *, place: int) -> None:  # noqa: ARG002 - see Observer
        """See ``Observer``."""
        self.begin(kind)
        self.queue.labels(kind).observe(place)

    def released(self, kind: str, name: str, *, held: float, outcome: str) -> None:  # noqa: ARG002 - see Observer
        """See ``Observer``."""
        self.begin(kind)
        self.releases.labels(kind, outcome).inc()
        if outcome != "lost":
            # The hold of a lost lease was over when it was lost.
            self.hold.labels(kind).observe(held, _exemplar())

    def lost(self, kind: str, name: str, *, held: float, reason: LossReason, acquired: object) -> None:  # noqa: ARG002 - see Observer
        """See ``Observer``."""
        self.begin(kind)
        self.losses.labels(kind, str(reason)).inc()
        self.hold.labels(kind).observe(held)

    def counted(self, what: str) -> None:
        """See ``Observer``."""
        if what in _COUNTED:
            self.renewals.labels(_COUNTED[what]).inc()
        elif what == "handed_over":
            self.handovers.inc()
        elif what == "outages":
            self.outages.inc()

    def called(self, operation: str, *, seconds: float, fault: str) -> None:
        """See ``Observer``."""
        self.requests.labels(operation).observe(seconds)
        if fault:
            self.faults.labels(fault).inc()


class _Gauges(Collector):
    """The gauges, which are read at each scrape."""

    def __init__(self, exporter: _Exporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterable[Metric]:
        """The current values of the gauges."""
        exporter = self._exporter
        found = exporter.snapshot()
        for name, text, values in (
            ("pawlock_locks_held", "Leases held now.", found.held),
            ("pawlock_lock_waiters", "Threads and tasks waiting now.", found.waiting),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["kind"])
            for kind, value in values.items():
                gauge.add_metric([kind], value)
            yield gauge
        states = GaugeMetricFamily(
            "pawlock_backend_clients", "Clients by connection state.", labels=["state"]
        )
        for state, clients in found.states.items():
            states.add_metric([state], clients)
        yield states
        build = GaugeMetricFamily("pawlock_build_info", "The version of pawlock.", labels=["version"])
        build.add_metric([version()], 1)
        yield build


def _exemplar() -> dict[str, str] | None:
    """The present trace, where the program has any: nothing is imported for it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return None
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


_exporters: WeakKeyDictionary[CollectorRegistry, _Exporter] = WeakKeyDictionary()


def instrument(client: Client | AsyncClient, registry: CollectorRegistry | None = None) -> None:
    """Export what a client does to Prometheus.

    All clients of a registry share its metrics. Lock names are no labels. Instrumenting a client again changes nothing.

    Args:
        client: The client, sync or async.
        registry: Where the metrics go; None: the default registry of prometheus-client.
    """
    registry = REGISTRY if registry is None else registry
    exporter = _exporters.get(registry)
    if exporter is None:
        exporter = _exporters[registry] = _Exporter(registry)
    exporter.clients.add(client)
    add_observer(client, exporter)
