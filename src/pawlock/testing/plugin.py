"""Fixtures for pytest, there for every project that has pawlock installed. A test that asks for none pays nothing."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pawlock.testing.memory.sim import Sim
    from pawlock.testing.order import LockOrder
    from pawlock.testing.outages import Faults
    from pawlock.testing.server import Server

# The heavy parts are imported by the fixtures: pytest imports this file at each run of each project.

__all__ = ["lock_order", "pawlock_faults", "pawlock_server", "pawlock_sim"]


@pytest.fixture(scope="session")
def _pawlock_run_server() -> Iterator[Server]:
    """The one server of this run."""
    from pawlock.errors import ConfigurationError
    from pawlock.testing.server import Server

    server = Server()
    try:
        server.start()
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)
    with server:
        yield server


@pytest.fixture
def pawlock_server(
    _pawlock_run_server: Server, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    """A real, empty server for this test: a ``pawlock.testing.Server``, the same for all tests of the run.

    ``PAWLOCK_URL`` is set to it, so that code which calls ``pawlock.connect()`` without an address uses it, also where a
    module did so when it was imported. A server that the code under test asks for by ``embedded://`` lives in a folder
    of the run's own. Without a server program on this machine the test fails and says what to install.
    """
    server = _pawlock_run_server.start()
    server.flush()
    with _default(server.url, tmp_path_factory, monkeypatch):
        yield server


@pytest.fixture
def pawlock_sim(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sim]:
    """No server at all: a ``pawlock.testing.Sim``, with a time of its own, where an hour passes in a moment.

    ``PAWLOCK_URL`` is set to it, as by ``pawlock_server``. Time passes when somebody waits in it: ``pawlock_sim.sleep(60)``,
    an acquire, in asyncio ``asyncio.sleep(60)``. It takes leases away, goes down, freezes, and stops a client, as
    ``pawlock_faults`` does with a real server; it serves one process. Without lupa the test fails and says what to install.
    """
    from pawlock.errors import ConfigurationError
    from pawlock.testing.memory.sim import Sim

    try:
        sim = Sim()
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)
    with sim, _default(sim.url, tmp_path_factory, monkeypatch):
        yield sim
        # Before clients are closed, which would wait for it.
        sim.fix()


@contextmanager
def _default(
    url: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Generator[None, None, None]:
    """Let ``pawlock.connect()`` find this, also where it was called before, and ``embedded://`` one of the run's own."""
    from pawlock.testing.clients import redirected

    monkeypatch.setenv("PAWLOCK_URL", url)
    folder = tmp_path_factory.getbasetemp() / "pawlock"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("PAWLOCK_STATE_DIR", str(folder))
    with redirected():
        yield


@pytest.fixture
def pawlock_faults(pawlock_server: Server) -> Iterator[Faults]:
    """Breaks what the code under test relies on: see ``pawlock.testing.Faults``. All outages end with the test."""
    from pawlock.testing.outages import Faults

    faults = Faults(pawlock_server)
    try:
        yield faults
    finally:
        faults.fix()


@pytest.fixture
def lock_order() -> Iterator[LockOrder]:
    """Fail the test if names were taken in different orders while it ran, with both places.

    What is expected is taken out by the test: ``lock_order.inversions.clear()``.
    """
    from pawlock.testing import order

    with warnings.catch_warnings():
        # Reported as a failure below, not twice.
        warnings.simplefilter("ignore", order.LockOrderWarning)
        with order.lock_order() as seen:
            yield seen
    if seen.inversions:
        pytest.fail("\n".join(map(str, seen.inversions)), pytrace=False)
