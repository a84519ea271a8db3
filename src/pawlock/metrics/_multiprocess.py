"""Gauges where the processes of a program share a folder (``PROMETHEUS_MULTIPROC_DIR``), as under gunicorn.

There, the process that is scraped reads the files of all, and cannot ask another process for its state. So each
process writes its state every second, from a thread.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from weakref import WeakSet, ref

from prometheus_client import CollectorRegistry, Gauge

from pawlock.metrics._shared import Snapshot

__all__ = ["SharedGauges", "multiprocess"]

log: logging.Logger = logging.getLogger("pawlock.metrics")

_EVERY = 1.0
# Held while values are written, and across a fork: a child must not inherit a lock that a thread was holding.
_writing = threading.Lock()
_over = threading.Event()
_all: WeakSet[SharedGauges] = WeakSet()


def multiprocess() -> bool:
    """Whether prometheus-client keeps its values in files that several processes share."""
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ


class SharedGauges:
    """The gauges of one registry, each the sum over the processes that live.

    Args:
        registry: Where they go.
        labels: The labels of leases.
        take_snapshot: Reads the state of the clients of this process.
        version: Of pawlock.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        labels: tuple[str, ...],
        take_snapshot: Callable[[], Snapshot],
        version: str,
    ) -> None:
        def gauge(name: str, text: str, of: tuple[str, ...], mode: str) -> Gauge:
            return Gauge(name, text, of, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]

        self._labels: tuple[str, ...] = labels
        self._take_snapshot: Callable[[], Snapshot] = take_snapshot
        self._version: str = version
        self._held = gauge("pawlock_locks_held", "Leases held now.", labels, "livesum")
        self._waiting = gauge("pawlock_lock_waiters", "Threads and tasks waiting now.", labels, "livesum")
        text = "Clients by connection state."
        self._states = gauge("pawlock_backend_clients", text, ("state",), "livesum")
        self._children: dict[tuple[Gauge, tuple[str, ...]], Gauge] = {}
        self._build = gauge("pawlock_build_info", "The version of pawlock.", ("version",), "livemax")
        _all.add(self)
        self.start()

    def start(self) -> None:
        """Start the thread that writes, in this process."""
        threading.Thread(
            target=_write_forever, args=(ref(self),), name="pawlock-metrics", daemon=True
        ).start()

    def write(self) -> None:
        """Write the current state of this process."""
        with _writing:
            found = self._take_snapshot()
            for gauge, values in ((self._held, found.held), (self._waiting, found.waiting)):
                for of, value in values.items():
                    self._set(gauge, of[: len(self._labels)], value)
            for state, clients in found.states.items():
                self._set(self._states, (state,), clients)
            self._build.labels(self._version).set(1)

    def clear(self) -> None:
        """Write zeros: what an exiting process leaves behind would be counted forever."""
        with _writing:
            for child in self._children.values():
                child.set(0)

    def _set(self, gauge: Gauge, of: tuple[str, ...], value: float) -> None:
        child = self._children.get((gauge, of))
        if child is None:
            child = self._children[gauge, of] = gauge.labels(*of)
        child.set(value)


def _write_forever(gauges: ref[SharedGauges]) -> None:
    """Write again and again, until the registry is gone or the process ends."""
    while (found := gauges()) is not None:
        try:
            found.write()
        except Exception:
            log.exception("the gauges could not be written; retrying")
        del found
        if _over.wait(_EVERY):
            return


def _in_child() -> None:
    _writing.release()
    # No thread survives a fork.
    for gauges in tuple(_all):
        gauges.start()


def _end() -> None:
    _over.set()
    for gauges in tuple(_all):
        gauges.clear()


os.register_at_fork(before=_writing.acquire, after_in_parent=_writing.release, after_in_child=_in_child)
atexit.register(_end)
