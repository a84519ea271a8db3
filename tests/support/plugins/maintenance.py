"""The background maintenance of a client goes on after an error of its own, and so no test would notice one."""

from __future__ import annotations

import logging
from collections.abc import Generator

import pytest

_LOGGERS = ("pawlock.threads", "pawlock.asyncio")
_FOUND: list[str] = []


class _Failures(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Keep what went wrong."""
        if "maintenance failed" in record.getMessage():
            _FOUND.append(logging.Formatter().format(record))


def pytest_configure() -> None:
    """Listen to both runtimes."""
    handler = _Failures(logging.ERROR)
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail a test during which it failed, unless that is marked ``maintenance_fails``."""
    yield
    found, _FOUND[:] = list(_FOUND), []
    if found and item.get_closest_marker("maintenance_fails") is None:
        pytest.fail("the background maintenance failed:\n" + "\n".join(found))
