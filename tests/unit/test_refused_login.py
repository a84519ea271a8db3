"""Who looks for deadlocks takes a refused login for what it is, and only a missing right for one that will stay so."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pawlock._deadlocks import DeadlockWatch
from pawlock.core.runtime import Fault, FaultKind
from pawlock.transport.conn import ReplyError
from pawlock.transport.connect import fault_of
from tests.support.refusal import case


def told(fault: Fault, caplog: pytest.LogCaptureFixture) -> tuple[bool, float]:
    """Whether a missing right was logged, and after how many seconds it is asked again."""
    watch = DeadlockWatch(cast("Any", None), 1.0)
    caplog.clear()
    watch._failed(fault, 0.0)
    return "no permission" in caplog.text, watch._next


def test_a_refused_login_is_no_missing_right(caplog: pytest.LogCaptureFixture) -> None:
    for words in (
        "WRONGPASS invalid username-password pair or user is disabled.",
        "NOAUTH Authentication required.",
    ):
        with case(words):
            logged, pause = told(fault_of(ReplyError(words), "redis://h:1/0"), caplog)
            assert not logged
            assert pause < 5
    logged, pause = told(Fault(FaultKind.DENIED, "NOPERM User app has no permissions to run 'hset'"), caplog)
    assert logged
    assert pause > 30
