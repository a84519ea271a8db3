"""Each alert on a single event fires at the first such event of a process, judged on what a real process exposes."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

import pawlock
import pawlock.metrics.otel
from pawlock.metrics.prometheus import instrument
from tests.contract.edges.helpers import eventually
from tests.contract.metrics import promql
from tests.contract.metrics.test_dashboard import RULES, queries, rules
from tests.support.command import environment
from tests.support.servers import Server

SINGLE = {name: expression for name, expression in rules() if "increase(" in expression}
EXPECTED = {
    "PawlockLeaseLost": {"kind": "lock", "reason": "expired"},
    "PawlockHoldTooLong": {"kind": "fair_lock"},
    "PawlockReleaseUnknown": {"kind": "lock"},
    "PawlockLeaseAbandoned": {"kind": "semaphore"},
    "PawlockDegraded": {"kind": "rlock", "policy": "local"},
}
# Nothing has happened; then everything, once; each time what Prometheus would read.
PROGRAM = """
import gc, sys, time
import pawlock
from prometheus_client import CollectorRegistry, generate_latest
from pawlock.metrics.prometheus import instrument
from tests.support.command import environment
from tests.support.servers import Server

registry = CollectorRegistry()
def scrape():
    print(generate_latest(registry).decode() + "# END", flush=True)
def until(metric, **labels):
    end = time.monotonic() + 30
    while not registry.get_sample_value(metric, labels):
        assert time.monotonic() < end, metric
        time.sleep(0.02)

with Server("valkey") as server:
    client = pawlock.connect(server.url)
    instrument(client, registry)
    scrape()
    lease = client.lock("a", ttl=0.2, renew=False).acquire()
    until("pawlock_lock_lost_total", kind="lock", reason="expired")
    long = client.fair_lock("b", ttl=2, max_hold=0.2).acquire()
    until("pawlock_lock_lost_total", kind="fair_lock", reason="max_hold")
    client.semaphore("c", permits=2, ttl=1).acquire()
    gc.collect()
    until("pawlock_lock_releases_total", kind="semaphore", outcome="abandoned")
    unknown = client.lock("d", ttl=1, unavailable_after=0.3).acquire()
    server.kill()
    try:
        unknown.release()
    except pawlock.BackendUnavailable:
        pass
    alone = client.rlock("e", on_unavailable="local", unavailable_after=0.3).acquire()
    scrape()
    client.close(0)
"""


@pytest.fixture(scope="module")
def exposed() -> list[str]:
    """What a process exposed before and after its first event of each sort."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after, _ = done.stdout.split("# END")
    return [before, after]


def test_the_alerts_on_single_events_are_known() -> None:
    assert set(SINGLE) == set(EXPECTED)
    assert all(promql.INCREASE.fullmatch(expression) for expression in SINGLE.values())


def test_the_first_event_of_a_process_fires(exposed: list[str]) -> None:
    before, after = map(promql.parse, exposed)
    scrapes = {15.0 * number: before if number < 20 else after for number in range(60)}
    for name, labels in EXPECTED.items():
        assert promql.fires(SINGLE[name], scrapes, at=299.0) == {}, name
        assert promql.fires(SINGLE[name], scrapes, at=360.0) == {frozenset(labels.items()): 1.0}, name
        # It does not go on forever.
        assert promql.fires(SINGLE[name], {**scrapes, 9000.0: after, 9015.0: after}, at=9015.0) == {}, name


def test_the_check_sees_a_series_that_begins_at_its_first_event(exposed: list[str]) -> None:
    before, after = map(promql.parse, exposed)
    late = {
        series: value
        for series, value in before.items()
        if "pawlock_lock_lost_total" not in dict(series).values()
    }
    scrapes = {15.0 * number: late if number < 20 else after for number in range(60)}
    assert promql.fires(SINGLE["PawlockLeaseLost"], scrapes, at=360.0) == {}


def test_every_series_that_is_asked_for_by_its_increase_is_there_before_the_first_event(
    exposed: list[str],
) -> None:
    there = {dict(series)["__name__"] for series in promql.parse(exposed[0])}
    wanted = {
        metric
        for expression in [*queries(), *SINGLE.values()]
        for metric in re.findall(r"increase\((\w+_total)", expression)
    }
    assert wanted >= {"pawlock_lock_lost_total", "pawlock_lock_degraded_total", "pawlock_lock_releases_total"}
    assert wanted <= there


def test_promtool_says_the_same(exposed: list[str], tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (apt install prometheus)")
    before, after = map(promql.parse, exposed)
    lines = []
    for series, value in after.items():
        labels = dict(series)
        name = labels.pop("__name__")
        text = ",".join(f'{label}="{found}"' for label, found in labels.items())
        first = f"{before[series]:g}x19" if series in before else "_x20"
        lines.append(f"      - series: '{name}{{{text}}}'\n        values: '{first} {value:g}x20'")
    test = [
        f"rule_files: [{RULES}]", "evaluation_interval: 30s", "tests:", "  - interval: 15s", "    input_series:",
        *lines, "    promql_expr_test:",
        '      - expr: count by (alertname) (ALERTS{alertname=~"' + "|".join(EXPECTED) + '"})',
        "        eval_time: 4m", "        exp_samples: []",
        '      - expr: count by (alertname) (ALERTS{alertstate="firing", alertname=~"' + "|".join(EXPECTED) + '"})',
        "        eval_time: 7m", "        exp_samples:",
    ]  # fmt: skip
    test += [f"          - {{labels: '{{alertname=\"{name}\"}}', value: 1}}" for name in EXPECTED]
    path = tmp_path / "test.yaml"
    path.write_text("\n".join(test), encoding="utf-8")
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_opentelemetry_counts_from_0_too(valkey: Server) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])

    def counted(metric: str) -> dict[frozenset[tuple[str, str]], float]:
        data = json.loads(reader.get_metrics_data().to_json())  # type: ignore[union-attr]
        metrics = data["resource_metrics"][0]["scope_metrics"][0]["metrics"]
        points = [one["data"]["data_points"] for one in metrics if one["name"] == metric]
        return {frozenset(point["attributes"].items()): point["value"] for point in points[0]}

    registry = CollectorRegistry()
    with pawlock.connect(valkey.url) as client:
        instrument(client, registry)

        def exported(metric: str) -> int:
            name = f"pawlock_{metric.replace('.', '_')}_total"
            return sum(one.name == name for found in registry.collect() for one in found.samples)

        pawlock.metrics.otel.instrument(client, meters, TracerProvider())
        lost = frozenset({"pawlock.lock.kind": "lock", "reason": "expired"}.items())
        assert counted("pawlock.lock.lost")[lost] == 0
        for metric in ("lock.lost", "lock.releases", "lock.degraded", "backend.faults"):
            assert len(counted(f"pawlock.{metric}")) == exported(metric) > 1, metric
        assert client.lock("otel", ttl=0.1, renew=False).acquire().lost.wait(5)
        eventually(lambda: counted("pawlock.lock.lost")[lost] == 1, "the loss is counted")
        assert len(counted("pawlock.lock.acquisitions")) == exported("lock.acquisitions") > 1
    meters.shutdown()


SCRAPED = """
import sys
import pawlock
from prometheus_client import start_http_server
from pawlock.metrics.prometheus import instrument
client = pawlock.connect(sys.argv[1])
instrument(client)
server, thread = start_http_server(int(sys.argv[2]), "127.0.0.1")
print("ready", flush=True)
sys.stdin.readline()
client.lock("short", ttl=0.1, renew=False).acquire().lost.wait(5)
print("lost", flush=True)
sys.stdin.readline()
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.slow
def test_a_real_prometheus_fires_at_the_first_loss_of_a_process(valkey: Server, tmp_path: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("no prometheus on PATH (apt install prometheus)")
    target, port = free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{RULES}]\n"
        f"scrape_configs: [{{job_name: app, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n",
        encoding="utf-8",
    )

    def asked(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=5) as answer:
            return json.load(answer)["data"]

    def scraped() -> bool:
        try:
            found = asked("query?query=count_over_time(pawlock_build_info[1m])")["result"]
        except OSError:
            return False
        return bool(found) and float(found[0]["value"][1]) >= 2

    def firing() -> set[str]:
        return {a["labels"]["alertname"] for a in asked("alerts")["alerts"] if a["state"] == "firing"}

    command = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    program = [sys.executable, "-c", SCRAPED, valkey.url, str(target)]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(program, env=environment(), stdin=-1, stdout=-1, text=True) as app,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path) as server,
    ):
        try:
            assert app.stdin is not None
            assert app.stdout is not None
            assert app.stdout.readline() == "ready\n"
            eventually(scraped, "it was scraped", timeout=60)
            assert firing() == set()
            app.stdin.write("\n")
            app.stdin.flush()
            assert app.stdout.readline() == "lost\n"
            eventually(lambda: firing() == {"PawlockLeaseLost"}, "the alert fires", timeout=60)
        finally:
            server.kill()
            app.kill()
