"""A name that is taken from its holder, step by step."""

from __future__ import annotations

from typing import Any

import pytest

import pawlock
from pawlock.core.observe import operator
from tests.support.servers import Server


def test_a_name_that_changes_hands_each_time_is_not_called_free(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as other:
        holds = [client.lock("quick", handover=0).acquire()]
        real: Any = vars(operator)["query"]

        async def passed_on(*given: Any) -> Any:
            if given[1].name == "force":
                holds.pop().release()
                holds.append(client.lock("quick", handover=0).acquire(timeout=0))
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
