"""No test is tried again but those marked ``@flaky``; they are few, and a run in which several need it fails."""

from __future__ import annotations

import pytest

MARKED = 40
"""How many tests may be marked: more of them, and a race would have a place to hide."""

NEEDED = 2
"""How many of these may need their second try in one run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hold the number of marked tests.

    Raises:
        pytest.UsageError: There are more, or one says no reason.
    """
    marked: set[str] = set()
    for item in items:
        if (mark := item.get_closest_marker("flaky")) is not None:
            marked.add(item.nodeid.partition("[")[0])
            if not mark.kwargs.get("reason"):
                raise pytest.UsageError(
                    f"{item.nodeid}: mark it with tests.support.flaky, which asks for a reason"
                )
    if len(marked) > MARKED:
        raise pytest.UsageError(f"{len(marked)} tests are marked flaky, and {MARKED} may be")


def tried_again(config: pytest.Config) -> list[pytest.TestReport]:
    """List the reports of first tries that failed."""
    reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    return [] if reporter is None else reporter.stats.get("rerun", [])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a run fail in which too many were tried again."""
    if session.exitstatus == pytest.ExitCode.OK and len(tried_again(session.config)) > NEEDED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List them."""
    if again := tried_again(config):
        terminalreporter.section(f"failed at first and tried again: {len(again)}, {NEEDED} are allowed")
        for report in again:
            terminalreporter.line(f"{report.nodeid} [{report.when}] {_crash(report)}")


def _crash(report: pytest.TestReport) -> str:
    """Say in a line why a try failed; where the message has several, the second says what was found."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
    return " | ".join(line.strip() for line in text.strip().splitlines()[:4])[:600]
