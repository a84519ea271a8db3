"""What ``client.check()`` and ``pawlock doctor`` find at the members of an etcd cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pawlock.core.runtime import Fault
from pawlock.etcd.gateway import Gateway
from pawlock.etcd.requests import LEAST_TTL
from pawlock.etcd.runtimes import LOOP
from pawlock.model import Finding, ServerReport, Severity
from pawlock.topology.endpoint import Endpoint

__all__ = ["examine"]

_TIMEOUT = 3.0


def examine(nodes: Sequence[Endpoint]) -> list[ServerReport]:
    """Check every member."""
    # Not here: the caller's thread may run an event loop.
    return LOOP.submit(_look_at_all(nodes)).result()


async def _look_at_all(nodes: Sequence[Endpoint]) -> list[ServerReport]:
    reports = [ServerReport(node.shown, tuple(await _look(node))) for node in nodes]
    if len(nodes) > 1:
        reached = sum(one.findings[0].check != "reach" for one in reports)
        severity = Severity.OK if reached > len(nodes) // 2 else Severity.ERROR
        quorum = _finding("quorum", severity, f"{reached} of {len(nodes)} members answer", "start the others")
        reports.append(ServerReport("all of them", (quorum,)))
    return reports


async def _look(node: Endpoint) -> list[Finding]:
    gateway = Gateway([node])
    try:
        async with asyncio.timeout(_TIMEOUT):
            status = await gateway.ask("maintenance/status", {})
            alarms = (await gateway.ask("maintenance/alarm", {"action": "GET"})).get("alarms", ())
            # The least that a lock needs; of keys, the trial that follows tells.
            if not alarms:
                lease = await gateway.ask("lease/grant", {"TTL": f"{LEAST_TTL}"})
                await gateway.ask("lease/revoke", {"ID": lease["ID"]})
    except (Fault, TimeoutError) as error:
        text = str(error) or f"{node.shown}: no answer within {_TIMEOUT:g} s"
        fix = "check the address, the network, the password, and that a majority of the members is running"
        return [_finding("reach", Severity.ERROR, text, fix)]
    finally:
        await gateway.close()
    size = f"its database has {int(status.get('dbSize', 0)) / 1e6:.1f} MB"
    quota = _finding("quota", Severity.OK, f"no alarm; {size}")
    if alarms:
        raised = ", ".join(sorted({str(one.get("alarm")) for one in alarms}))
        fix = "compact, defragment, then etcdctl alarm disarm; raise --quota-backend-bytes"
        quota = _finding("quota", Severity.ERROR, f"alarm {raised}: it refuses writes; {size}", fix)
    return [_finding("version", Severity.OK, f"etcd {status.get('version')}"), quota]


def _finding(check: str, severity: Severity, text: str, fix: str = "") -> Finding:
    return Finding(check, severity, text, "availability" if fix else "", fix)
