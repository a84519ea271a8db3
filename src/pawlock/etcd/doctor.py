"""What ``client.check()`` and ``pawlock doctor`` find at the members of an etcd cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from pawlock.core.runtime import Fault
from pawlock.etcd.gateway import Gateway
from pawlock.model import Finding, ServerReport, Severity
from pawlock.topology.endpoint import Endpoint

__all__ = ["examine"]

_TIMEOUT = 3.0
_PROMISE = "availability"


def examine(nodes: Sequence[Endpoint]) -> list[ServerReport]:
    """Check every member."""
    found: list[ServerReport] = []

    def look() -> None:
        found.extend(asyncio.run(_look_at_all(nodes)))

    # The caller's thread may run an event loop already.
    thread = threading.Thread(target=look, name="pawlock-doctor")
    thread.start()
    thread.join()
    return found


async def _look_at_all(nodes: Sequence[Endpoint]) -> list[ServerReport]:
    reports = [ServerReport(node.shown, tuple(await _look(node))) for node in nodes]
    reached = sum(one.findings[0].check != "reach" for one in reports)
    if len(nodes) > 1:
        enough = reached > len(nodes) // 2
        severity = Severity.OK if enough else Severity.ERROR
        text = f"{reached} of {len(nodes)} members answer"
        fix = "start the others: a majority grants"
        reports.append(ServerReport("all of them", (Finding("quorum", severity, text, _PROMISE, fix),)))
    return reports


async def _look(node: Endpoint) -> list[Finding]:
    gateway = Gateway([node])
    try:
        async with asyncio.timeout(_TIMEOUT):
            status = await gateway.ask("maintenance/status", {})
            alarms = await gateway.ask("maintenance/alarm", {"action": "GET"})
            login = await _may_write(gateway)
    except (Fault, TimeoutError) as error:
        text = error.text if isinstance(error, Fault) else f"no answer within {_TIMEOUT:g} s"
        fix = "check the address, the network, the password, and that the member is running"
        return [Finding("reach", Severity.ERROR, text, _PROMISE, fix)]
    finally:
        await gateway.close()
    version = Finding("version", Severity.OK, f"etcd {status.get('version')}")
    return [version, _leader(status), _quota(status, alarms), login]


def _leader(status: dict[str, Any]) -> Finding:
    if int(status.get("leader", 0)):
        return Finding("leader", Severity.OK, "it knows a leader")
    text = "it knows no leader: a majority of the members is away, or cannot be reached from it"
    return Finding(
        "leader",
        Severity.ERROR,
        text,
        _PROMISE,
        "start the other members, and check the network between them",
    )


def _quota(status: dict[str, Any], alarms: dict[str, Any]) -> Finding:
    raised = sorted({str(one.get("alarm")) for one in alarms.get("alarms", ())})
    if raised:
        text = f"alarm {', '.join(raised)}: it refuses writes"
        fix = "compact, defragment, then etcdctl alarm disarm; raise --quota-backend-bytes"
        return Finding("quota", Severity.ERROR, text, _PROMISE, fix)
    size = int(status.get("dbSize", 0))
    return Finding("quota", Severity.OK, f"no alarm; its database has {size / 1e6:.1f} MB")


async def _may_write(gateway: Gateway) -> Finding:
    """Whether this user may take a lease and write: a lease of the least life, at once given back."""
    lease = await gateway.ask("lease/grant", {"TTL": "2"})
    await gateway.ask("lease/revoke", {"ID": lease["ID"]})
    return Finding("auth", Severity.OK, "this user may take leases")
