"""Servers for all tests; the plugins see to it that nothing is left, and that nothing goes unnoticed."""

import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import EVERY_FLAVOUR, FLAVOURS, Flavour, Server, available

pytest_plugins = [
    "tests.support.plugins.leaks",
    "tests.support.plugins.maintenance",
    "tests.support.plugins.retries",
    "tests.support.plugins.signals",
    "tests.support.plugins.skips",
]


_PRIORITY = -10
"""Nine times as much of a core as a program of ordinary priority gets."""


NIGHTLY = Path(__file__).parent / "nightly"
"""What `make test-full` alone runs."""

REPEATS = ("contention", "simulation")
"""Folders whose tests go the same ways ten thousand times: counting lines there costs half as much again."""

SLOW_LIMIT = 600
"""Seconds that a slow test may take which names no limit of its own."""


def pytest_configure() -> None:
    """Let Ctrl-C be Ctrl-C: a run that a script began in the background inherits that it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _go_before_others()


def _go_before_others() -> None:
    """Have leases of a second renewed beside busy programs too, where the kernel lets us: as root.

    A lease is lost where its program is not run in time: that is what a lease is. Who chose a priority keeps it.
    """
    if os.nice(0) == 0:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)


def pytest_xdist_auto_num_workers() -> int:
    """Say how many tests run at once under ``-n auto``: most of them wait for two thirds of their time."""
    return max(4, min(12, 4 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 8))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests/nightly to the full run, and the second flavour of most tests: what they test is the client."""
    for item in items:
        if NIGHTLY in item.path.parents:
            item.add_marker(pytest.mark.slow)
        if item.path.parent.name in REPEATS:
            item.add_marker(pytest.mark.no_cover)
        flavours = [
            v
            for v in getattr(getattr(item, "callspec", None), "params", {}).values()
            if v in EVERY_FLAVOUR[1:]
        ]
        if flavours:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            # Eight at a time on two cores: what takes forty seconds alone can need more than the usual limit.
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))


def pytest_collection_finish() -> None:
    """Keep what is there before the tests out of the collections that tests ask for."""
    gc.collect()
    gc.freeze()


def started(flavour: Flavour) -> Server:
    """Start a server, or skip the test with the reason why this machine has none of that flavour."""
    if reason := available(flavour):
        pytest.skip(reason)
    return Server(flavour).start()


@pytest.fixture(scope="session", params=FLAVOURS)
def shared_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server of each flavour for the whole run; tests take it through `server`, which cleans it."""
    with started(request.param) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """A real server without any key, once for each flavour on this machine.

    It is shared with the tests that follow: one that stops, pauses or reconfigures it takes `own_server`.
    """
    shared_server.command("FLUSHALL")
    return shared_server


@pytest.fixture(params=FLAVOURS)
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, to be broken at will."""
    with started(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def valkey() -> Iterator[Server]:
    """One Valkey server for a module, where the flavour makes no difference."""
    with started("valkey") as server:
        yield server
