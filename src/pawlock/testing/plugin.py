"""Fixtures for pytest, there for every project that has pawlock installed. A test that asks for none pays nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pawlock.testing.memory import Memory, Sim
    from pawlock.testing.order import LockOrder
    from pawlock.testing.outages import Faults
    from pawlock.testing.servers import Server

# The heavy parts are imported by the fixtures: pytest imports this file at each run of each project.

collecting: bool = True
"""Whether modules of the code under test are being imported: see ``pawlock._target``."""


def pytest_collection_finish() -> None:
    """From here on a client without a server is an error where it is made, as it is without pytest."""
    global collecting  # noqa: PLW0603 - pytest calls plain functions of a module
    collecting = False


__all__ = [
    "pawlock_faults",
    "pawlock_lock_order",
    "pawlock_memory",
    "pawlock_server",
    "pawlock_sim",
    "pytest_collection_finish",
]


@pytest.fixture(scope="session")
def _pawlock_run_server() -> Iterator[Server]:
    """The one server of this run."""
    from pawlock.testing.servers import FLAVOURS, Flavour, Server, available

    refusals: dict[Flavour, str | None] = {flavour: available(flavour) for flavour in FLAVOURS}
    flavour: Flavour | None = next((one for one, refusal in refusals.items() if refusal is None), None)
    if flavour is None:
        pytest.fail(f"no server to test with: {'; '.join(map(str, refusals.values()))}", pytrace=False)
    with Server(flavour) as server:
        yield server


@pytest.fixture
def pawlock_server(
    _pawlock_run_server: Server, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    """A real, empty server for this test: a ``pawlock.testing.Server``, the same for all tests of the run.

    ``PAWLOCK_URL`` is set to it, so that code which calls ``pawlock.connect()`` without an address uses it. A client that a
    module made so when it was imported is led to it for the length of the test; one that was made for another server
    is refused, with the line that made it. A server that the code under test asks for by ``embedded://`` lives in a
    folder of the run's own. Without a server program on this machine the test fails and says what to install.
    """
    server = _pawlock_run_server.start()
    server.command("FLUSHALL")
    with _leading_to(server.url, tmp_path_factory, monkeypatch):
        yield server


def _leading_to(
    url: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> ExitStack:
    """Let ``pawlock.connect()`` find this, also where it was called before, and ``embedded://`` one of the run's own."""
    from pawlock.testing.early import lead_to

    monkeypatch.setenv("PAWLOCK_URL", url)
    folder = tmp_path_factory.getbasetemp() / "pawlock"
    folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("PAWLOCK_STATE_DIR", str(folder))
    return lead_to(url)


@pytest.fixture
def pawlock_memory(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Memory]:
    """No server at all: a ``pawlock.testing.Memory``, where pawlock's scripts run in the process of the test.

    ``PAWLOCK_URL`` is set to it. It takes leases away, goes down, freezes, and stops a client, as ``pawlock_faults`` does
    with a real server; it serves one process. Without lupa the test fails and says what to install.
    """
    with _opened("Memory") as memory, _leading_to(memory.url, tmp_path_factory, monkeypatch):
        yield memory


@pytest.fixture
def pawlock_sim(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sim]:
    """The same with a time of its own: a ``pawlock.testing.Sim``, where an hour passes in a moment.

    Time passes when somebody waits in it: ``pawlock_sim.sleep(60)``, an acquire, in asyncio ``asyncio.sleep(60)``.
    """
    with _opened("Sim") as sim, _leading_to(sim.url, tmp_path_factory, monkeypatch):
        yield sim


def _opened(what: str) -> Any:
    from pawlock.errors import ConfigurationError
    from pawlock.testing import memory

    try:
        return getattr(memory, what)()
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def pawlock_faults(pawlock_server: Server) -> Iterator[Faults]:
    """Breaks what the code under test relies on: see ``pawlock.testing.Faults``. All outages end with the test."""
    from pawlock.testing.outages import Faults

    faults = Faults(pawlock_server)
    try:
        yield faults
    finally:
        faults.mend()


@pytest.fixture
def pawlock_lock_order() -> Iterator[LockOrder]:
    """Fail the test if names were taken in different orders while it ran, with both places.

    What is expected is taken out by the test: ``pawlock_lock_order.inversions.clear()``.
    """
    from pawlock.testing.order import LockOrderWarning, lock_order

    with warnings.catch_warnings():
        # Reported as a failure below, not twice.
        warnings.simplefilter("ignore", LockOrderWarning)
        with lock_order() as order:
            yield order
    if order.inversions:
        pytest.fail("\n".join(map(str, order.inversions)), pytrace=False)
