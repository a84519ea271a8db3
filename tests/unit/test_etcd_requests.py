"""What of the requests on etcd no real member shows: one that dies between two of them, and what a client remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from pawlock._system import now
from pawlock.core.runtime import Fault, FaultKind
from pawlock.etcd.gateway import Gateway
from pawlock.etcd.requests import Book, Lease, Requests, Wish


class Dies:
    """A member that takes the row away, and is gone when the lease is to be revoked."""

    at = 0

    async def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        del body
        if path == "lease/revoke":
            raise Fault(FaultKind.UNREACHABLE, "gone")
        return {"header": {"revision": "5"}, "succeeded": True, "responses": [{"response_range": {}}]}


async def test_a_leave_that_is_cut_short_may_have_been_carried_out() -> None:
    """Else its repetition, which finds nothing, would pass for a lease that was lost before."""
    book = Book()
    book.note("secret@host:1/t", Lease("1", 5, now()))
    requests = Requests(cast("Gateway", Dies()), book)
    with pytest.raises(Fault) as caught:
        await requests.leave(Wish(b"pawlock:n", "secret@host:1/t"), for_good=True, close_ms=0)
    assert caught.value.maybe_applied
    assert book.leases, "what is still to be revoked is known to the next try"


def test_leases_of_tokens_that_nobody_leaves_are_forgotten() -> None:
    book = Book()
    kept = Lease("1", 30, now())
    book.note("held", kept)
    for number in range(2000):
        book.note(f"detached {number}", Lease(str(number), 5, now() - 20))
    assert len(book.leases) < 300
    assert book.leases["held"] is kept
