"""What was not checked is said at the end, with its reason; on demand, a skip is a failure.

`--allowed-skips FILE` names the skips that are accepted, one regular expression for the reason a line,
followed by ` :: ` and why. Skips of `make lint` come in through the file that `PAWLOCK_LINT_SKIPS` names.
"""

import os
import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.servers import ServerNotInstalledError

LINT_SKIPS = os.environ.get("PAWLOCK_LINT_SKIPS", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--allowed-skips`."""
    parser.addoption("--allowed-skips", metavar="FILE", help="fail on any skip that this file does not allow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Skip a test whose fixtures start a server that is not installed, also where they failed for an earlier one."""
    try:
        return (yield)
    except ServerNotInstalledError as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that starts such a server itself."""
    try:
        return (yield)
    except ServerNotInstalledError as missing:
        pytest.skip(str(missing))


def reason_of(report: pytest.TestReport) -> str:
    """Take the reason from a skipped test's report."""
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return text.removeprefix("Skipped: ")


def lint_skips() -> list[str]:
    """Read what `make lint` left out, when it ran before these tests."""
    if not LINT_SKIPS or not Path(LINT_SKIPS).exists():
        return []
    return Path(LINT_SKIPS).read_text(encoding="utf-8").splitlines()


def allowed(file: str) -> list[re.Pattern[str]]:
    """Read the reasons that are accepted.

    Raises:
        pytest.UsageError: a line does not say why it is there.
    """
    patterns = []
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, why = line.partition(" :: ")
        if not why.strip():
            raise pytest.UsageError(f"{file}: no reason after ' :: ' in {line!r}")
        patterns.append(re.compile(pattern.strip()))
    return patterns


def skips(config: pytest.Config) -> Counter[str]:
    """Count every skip of this run by its reason."""
    reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter is not None else []
    return Counter([*map(reason_of, reports), *lint_skips()])


def refused(config: pytest.Config) -> list[str]:
    """List the reasons that `--allowed-skips` does not accept; none without that option."""
    file = config.getoption("--allowed-skips")
    if not file:
        return []
    patterns = allowed(file)
    return [reason for reason in skips(config) if not any(pattern.search(reason) for pattern in patterns)]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the run fail when something was skipped that must not be."""
    if session.exitstatus == pytest.ExitCode.OK and refused(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the skips before the closing line."""
    counted = skips(config)
    left_out = len(terminalreporter.stats.get("deselected", []))
    if counted:
        terminalreporter.section(f"not checked: {counted.total()}")
        for reason, count in counted.most_common():
            terminalreporter.line(f"{count:5d} × {reason}")
    for reason in refused(config):
        terminalreporter.line(f"FAILED: this skip is not among the allowed ones: {reason}", red=True)
    if left_out and config.option.markexpr == "not slow":
        terminalreporter.line(f"{left_out} slow tests left out; `make test-full` runs them")
