"""Who is in the blocks of one lock object."""

from __future__ import annotations

from typing import Any

from pawlock.core.lease.base import take_entered


def test_a_finaliser_that_runs_others_meanwhile_takes_no_entry_of_theirs() -> None:
    """One that was looked at has left, and whoever else is in front leaves while its last reference goes."""

    class Gone:
        def __del__(self) -> None:
            del entered[0]

    class Entered(list[tuple[object, Any]]):
        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            if isinstance(found[1], Gone):
                del self[at]
            return found

    me = object()
    entered = Entered([("in front", "theirs"), (me, "mine"), ("behind", Gone()), ("last", "theirs too")])
    assert take_entered(entered, me) == "mine"
    assert list(entered) == [("last", "theirs too")]
