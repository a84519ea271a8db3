"""A name that is taken from its holder, step by step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pawlock
from pawlock.core import operator
from tests.support.servers import Server


def test_a_name_that_changes_hands_each_time_is_not_called_free(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pawlock.connect(valkey.url) as client,
        pawlock.connect(valkey.url) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        holds = [pool.submit(client.lock("quick", handover=0).acquire).result()]
        real: Any = vars(operator)["query"]

        def pass_on() -> None:
            holds.pop().release()
            holds.append(client.lock("quick", handover=0).acquire(timeout=0))

        async def passed_on(*given: Any) -> Any:
            if given[1].name == "force":
                # This thread is in an operation.
                pool.submit(pass_on).result()
            return await real(*given)

        monkeypatch.setattr(operator, "query", passed_on)
        with pytest.raises(pawlock.NotHeld, match="it changed hands each time"):
            other.force_release("quick", reason="stuck")
        assert (other.audit()[0].outcome, other.audit()[0].fence) == ("changed", None)
        assert other.audit()[0].holder == client.inspect("quick").holder != ""
        monkeypatch.undo()
        other.force_release("quick", reason="stuck")
        with pytest.raises(pawlock.NotHeld):
            holds.pop().release()
