"""The same for OpenTelemetry, with spans; and traces in the exemplars of Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import exposition

import pawlock
from pawlock.metrics import otel, prometheus
from tests.contract.redlock.apis import APIS, connect, done, play
from tests.support.servers import Server

# It has no types of its own.
generate_latest: Callable[[CollectorRegistry], bytes] = cast("Any", exposition).generate_latest
each_api = pytest.mark.parametrize("api", APIS)


class Telemetry:
    """Providers that keep what they get."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def points(self) -> dict[str, dict[tuple[tuple[str, Any], ...], Any]]:
        """Each metric's points by their attributes."""
        data = self.reader.get_metrics_data()
        found: dict[str, dict[tuple[tuple[str, Any], ...], Any]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = found.setdefault(metric.name, {})
                    for point in metric.data.data_points:
                        points[tuple(sorted((point.attributes or {}).items()))] = point
        return found

    def spans(self, name: str) -> list[ReadableSpan]:
        """The spans of that name."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@each_api
def test_metrics_and_spans(valkey: Server, api: str) -> None:
    telemetry = Telemetry()
    mine = ("pawlock.lock.kind", "lock")
    with pawlock.connect(valkey.url) as other:
        theirs = other.lock("a").acquire()

        async def scenario() -> None:
            client = connect(api, valkey.url)
            otel.instrument(client, telemetry.meters, telemetry.tracers)
            otel.instrument(client, telemetry.meters, telemetry.tracers)
            tracer = telemetry.tracers.get_tracer("test")
            threading.Timer(0.2, theirs.release).start()
            with tracer.start_as_current_span("request"):
                lease = await done(client.lock("a").acquire(timeout=5))
            assert telemetry.points()["pawlock.locks.held"][mine,].value == 1
            await done(lease.release())
            with tracer.start_as_current_span("job"):
                short = await done(client.lock("b", ttl=0.2, renew=False).acquire())
            assert await done(short.lost.wait(5))
            await done(client.close())

        play(api, scenario)
    points = telemetry.points()
    assert points["pawlock.lock.wait_time"][mine,].count == 2
    assert points["pawlock.lock.contended"][mine,].value == 1
    assert points["pawlock.lock.acquisitions"][("outcome", "acquired"), mine].value == 2
    assert points["pawlock.lock.lost"][mine, ("reason", "expired")].value == 1
    assert points["pawlock.lock.releases"][("outcome", "released"), mine].value == 1
    assert points["pawlock.lock.queue_length"][mine,].sum == 1
    assert 0.005 in points["pawlock.lock.wait_time"][mine,].explicit_bounds
    (taken,) = telemetry.spans("pawlock.acquire")
    (request,) = telemetry.spans("request")
    assert taken.parent is not None
    assert request.context is not None
    assert taken.parent.span_id == request.context.span_id
    assert taken.start_time is not None
    assert taken.end_time is not None
    assert 0.15e9 < taken.end_time - taken.start_time < 4e9
    assert (taken.attributes or {})["pawlock.lock.name"] == "a"
    (lost,) = telemetry.spans("pawlock.lost")
    (job,) = telemetry.spans("job")
    assert lost.parent is not None
    assert job.context is not None
    assert lost.parent.span_id == job.context.span_id
    assert (lost.attributes or {})["reason"] == "expired"


def test_a_wait_in_vain_is_a_span_with_an_error(valkey: Server) -> None:
    telemetry = Telemetry()
    with pawlock.connect(valkey.url) as other, other.lock("c"), pawlock.connect(valkey.url) as client:
        otel.instrument(client, telemetry.meters, telemetry.tracers)
        with pytest.raises(pawlock.AcquireTimeout):
            client.lock("c").acquire(timeout=0.5)
    (span,) = telemetry.spans("pawlock.acquire")
    assert not span.status.is_ok
    assert (span.attributes or {})["outcome"] == "timeout"


@each_api
def test_exemplars_name_the_trace(valkey: Server, api: str) -> None:
    telemetry = Telemetry()
    registry = CollectorRegistry()

    async def scenario() -> None:
        client = connect(api, valkey.url)
        prometheus.instrument(client, registry)
        await done((await done(client.lock("untraced").acquire())).release())
        assert b"trace_id" not in generate_latest(registry)
        with telemetry.tracers.get_tracer("test").start_as_current_span("request"):
            await done((await done(client.lock("traced").acquire())).release())
        await done(client.close())

    play(api, scenario)
    (span,) = telemetry.spans("request")
    assert span.context is not None
    text = generate_latest(registry).decode()
    assert f'trace_id="{span.context.trace_id:032x}"' in text
