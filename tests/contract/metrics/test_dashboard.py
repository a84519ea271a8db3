"""The dashboard and the alerts speak of what is exported; each alert has its page; Prometheus takes the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import pawlock
from pawlock.metrics.prometheus import instrument
from pawlock.service.gauges import text_of
from tests.support.command import environment
from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "docs/grafana/pawlock-alerts.yaml"
DASHBOARD = ROOT / "docs/grafana/pawlock-overview.json"
METRIC = re.compile(r"\bpawlock_[a-z_]+")


@pytest.fixture(scope="module")
def exported(valkey: Server) -> tuple[set[str], set[str]]:
    """The names of all series, and of all their labels, once everything has happened at least once."""
    registry = CollectorRegistry()
    with pawlock.connect(valkey.url) as client:
        instrument(client, registry)
        lease = client.lock("a", ttl=0.2, renew=False).acquire()
        assert lease.lost.wait(5)
        with pytest.raises(pawlock.NotHeld):
            lease.release()
        with pawlock.connect(valkey.url) as other, other.lock("a"), pytest.raises(pawlock.AcquireTimeout):
            client.lock("a").acquire(timeout=0.5)
        with pawlock.connect("redis://127.0.0.1:1") as nowhere:
            instrument(nowhere, registry)
            nowhere.lock("a", on_unavailable="open", unavailable_after=0).acquire().release()
        text = generate_latest(registry).decode()
        with client.lock("b"):
            text += generate_latest(registry).decode()
    # Those of the service, which are of all clients.
    text += text_of([("pawlock", [])])
    lines = [line for line in text.splitlines() if line.startswith("pawlock_")]
    return {re.split(r"[{ ]", line)[0] for line in lines}, set(re.findall(r'[{,](\w+)="', "\n".join(lines)))


def rules() -> list[tuple[str, str]]:
    """Each alert and its expression, as they stand in the file."""
    text = RULES.read_text(encoding="utf-8")
    found = re.findall(r"- alert: (\w+)\n\s+expr: (?:>-\n)?(.*?)\n\s+(?:for|labels):", text, re.DOTALL)
    assert len(found) == text.count("- alert:") > 0
    return cast("list[tuple[str, str]]", found)


def queries() -> list[str]:
    """Every expression of the dashboard."""
    dashboard: Any = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [v["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    assert len(found) > 20
    return found


def test_every_metric_and_label_is_exported(exported: tuple[set[str], set[str]]) -> None:
    series, labels = exported
    for expression in [*queries(), *(expression for _, expression in rules())]:
        names = set(METRIC.findall(expression))
        assert names, expression
        assert names <= series, expression
        used = set(re.findall(r"[{,](\w+)(?:=~|!~|!=|=)", expression))
        for group in re.findall(r"by \(([^)]*)\)", expression):
            used |= {label.strip() for label in group.split(",")}
        # Prometheus itself adds the job.
        assert used <= labels | {"job"}, expression


def test_every_outcome_that_is_asked_for_is_one(exported: tuple[set[str], set[str]]) -> None:
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in [
            *(ROOT / "src/pawlock/core").glob("*.py"),
            ROOT / "src/pawlock/model.py",
            *(ROOT / "src/pawlock/metrics").glob("*.py"),
        ]
    )
    for expression in [*queries(), *(expression for _, expression in rules())]:
        for label, values in re.findall(r'(outcome|reason|state)[=!]~?"([^"]*)"', expression):
            for value in values.split("|"):
                assert f'"{value}"' in source, f"{label}={value} in {expression}"


def test_each_panel_has_its_place_and_its_data_source() -> None:
    dashboard: Any = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert dashboard["uid"] == "pawlock-overview"
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        at = panel["gridPos"]
        mine = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not mine & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= mine
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_each_alert_has_its_section() -> None:
    page = (ROOT / "docs/how-to/metrics.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### (Pawlock\w+)$", page, re.MULTILINE)
    assert sections == [alert for alert, _ in rules()]
    text = RULES.read_text(encoding="utf-8")
    site = re.findall(
        r"^site_url: (https://\S+/)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert f'Documentation = "{site[0]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for alert in sections:
        assert f'runbook_url: "{site[0]}how-to/metrics/#{alert.lower()}"' in text
    assert text.count("runbook_url") == len(sections)


def test_prometheus_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (apt install prometheus)")
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


@pytest.mark.parametrize(("module", "extra", "gone"), [
    ("prometheus", "prometheus", "prometheus_client"), ("otel", "otel", "opentelemetry"),
])  # fmt: skip
def test_a_missing_extra_is_told_in_one_line(module: str, extra: str, gone: str) -> None:
    program = f"import sys; sys.modules[{gone!r}] = None\nimport pawlock.metrics.{module}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f'ImportError: pawlock.metrics.{module}: run pip install "pawlock[{extra}]"'
    )
