"""What an instance records of its requests: counters for Prometheus, an audit log and an access log.

``pawlock.service.audit`` has what was refused and what was forced, ``pawlock.service.access`` every request. Neither has a
token of any kind.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pawlock.service.problems import Problem

__all__ = ["JsonLines", "RequestLog"]

access_log: logging.Logger = logging.getLogger("pawlock.service.access")
audit_log: logging.Logger = logging.getLogger("pawlock.service.audit")

_REFUSED = (401, 403, 429, 431)
_REFUSED_A_SECOND = 20
_KNOWN_METHODS = {"GET", "POST", "DELETE", "HEAD"}


class RequestLog:
    """Counts and logs the requests of one instance.

    Args:
        gauges: Name and help of each gauge, and the function that reads it at each scrape.
    """

    def __init__(self, gauges: Mapping[tuple[str, str], Callable[[], float]]) -> None:
        self._second = 0
        self._refused = 0
        self._unlogged = 0
        self._registry: Any = None
        self._requests: Any = None
        self._seconds: Any = None
        try:
            import prometheus_client as prometheus
        except ImportError:
            return
        self._registry = prometheus.CollectorRegistry()
        labels = ("method", "operation", "status")
        self._requests = prometheus.Counter(
            "pawlock_http_requests", "Answered requests.", labels, registry=self._registry
        )
        self._seconds = prometheus.Histogram(
            "pawlock_http_request_seconds", "Duration of requests in seconds, including waiting.", ("operation",),
            registry=self._registry,
        )  # fmt: skip
        for (name, what), value in gauges.items():
            prometheus.Gauge(name, what, registry=self._registry).set_function(value)
        # Created before the first event: increase() of a series that starts at 1 would be 0.
        for status in _REFUSED:
            self._requests.labels("POST", "acquire", str(status))

    def metrics(self) -> tuple[bytes, str]:
        """The metrics in the format of Prometheus, and their media type.

        Raises:
            Problem: The library for it is not installed.
        """
        if self._registry is None:
            raise Problem(501, "NOT_SUPPORTED", "metrics need prometheus-client: install it with the service")
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def note(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """Note one request that was answered.

        Args:
            scope: The request, with what was noted of it under ``pawlock.…``.
            status: The status of its answer.
            seconds: How long it took.
        """
        operation = scope.get("pawlock.operation") or _operation_of(scope)
        if self._requests is not None:
            method = scope["method"] if scope["method"] in _KNOWN_METHODS else "other"
            self._requests.labels(method, operation, str(status)).inc()
            self._seconds.labels(operation).observe(seconds)
        if access_log.isEnabledFor(logging.INFO):
            access_log.info("request", extra=_fields("request", scope, status, seconds))
        if status in _REFUSED:
            self._note_refused(scope, status, seconds)
        elif operation == "force-release" and audit_log.isEnabledFor(logging.WARNING):
            audit_log.warning("forced", extra=_fields("forced", scope, status, seconds))

    def _note_refused(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        # Clients without a token must not be able to fill the disk.
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._refused = second, 0
        self._refused += 1
        if self._refused > _REFUSED_A_SECOND:
            self._unlogged += 1
            return
        fields = _fields("refused", scope, status, seconds)
        if self._unlogged:
            fields["pawlock_unlogged"], self._unlogged = self._unlogged, 0
        audit_log.warning("refused", extra=fields)


def _operation_of(scope: Mapping[str, Any]) -> str:
    """The fixed parts of its route: never text that a client may choose."""
    route = getattr(scope.get("route"), "path", None)
    if route is None:
        return "other"
    words = [
        word for word in route.split("/") if word and not word.startswith("{") and word not in ("v1", "ns")
    ]
    return "/".join(words) or "look"


def _fields(event: str, scope: Mapping[str, Any], status: int, seconds: float) -> dict[str, Any]:
    client = scope.get("client")
    return {
        "pawlock_event": event,
        "pawlock_client": scope.get("pawlock.who"),
        "pawlock_address": client[0] if client else None,
        "pawlock_method": scope["method"],
        "pawlock_path": scope["path"][:600],
        "pawlock_status": status,
        "pawlock_code": scope.get("pawlock.code"),
        "pawlock_seconds": round(seconds, 4),
    }


class JsonLines(logging.Handler):
    """Writes each record as one line of JSON.

    Args:
        write: Takes a line.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            key.removeprefix("pawlock_"): value
            for key, value in vars(record).items()
            if key.startswith("pawlock_")
        }
        if "event" not in fields:
            fields = {"event": record.levelname.lower(), "text": self.format(record), **fields}
        self._write(json.dumps({"at": at, **fields}, default=str))
