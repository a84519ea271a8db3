"""`pawlock grafana`: the dashboard and the alert rules that come with pawlock."""

from __future__ import annotations

from importlib.resources import files

import click

from pawlock.cli.exits import Exit

__all__ = ["grafana"]

_EXAMPLES = """\b
Examples:
  pawlock grafana > pawlock.json                   then in Grafana: Dashboards, New, Import
  pawlock grafana --alerts > pawlock-alerts.yaml   then add it to rule_files in prometheus.yml
  pawlock grafana --alerts | promtool check rules /dev/stdin

The dashboard and the rules use the metrics of `pawlock.metrics.prometheus.instrument(client)`.
"""


@click.command(epilog=_EXAMPLES)
@click.option("--alerts", is_flag=True, help="Print the Prometheus alert rules (YAML) instead.")
def grafana(*, alerts: bool) -> int:
    """Print the Grafana dashboard for pawlock's metrics, as JSON.

    The dashboard lets you choose the data source and the job. Each alert has a runbook in the documentation.
    """
    name = "pawlock-alerts.yaml" if alerts else "pawlock-overview.json"
    # A path below the package, not the package: its metrics may lack their extra.
    click.echo((files("pawlock") / "metrics" / "data" / name).read_text(encoding="utf-8"), nl=False)
    return Exit.OK
