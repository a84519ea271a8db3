"""What the service answers where its own server is wrong names neither that nor its user there."""

from __future__ import annotations

from pawlock.core.faults import classify, to_error
from pawlock.core.runtime import Fault, FaultKind
from pawlock.errors import AcquireTimeout
from pawlock.service.problems import problem_of
from tests.support.refusal import case

SHOWN = "redis://db.internal:6379/0"
FAULTS = (
    *(Fault(kind, f"{SHOWN}: words of user lockuser") for kind in FaultKind),
    classify("NOPERM User lockuser has no permissions to run the 'evalsha' command"),
    classify("ERR ACL failure in script: User lockuser has no permissions to run the 'time' command"),
)
NOT_OF_THE_SERVER = (FaultKind.LATE, FaultKind.WRONG_KEY, FaultKind.CLOSED)


def test_no_answer_names_the_server_or_its_user() -> None:
    for fault in FAULTS:
        if fault.kind in NOT_OF_THE_SERVER:
            continue
        with case(fault.kind, fault.text):
            detail = problem_of(to_error(fault, "order", "acquire lock")).detail
            assert "db.internal" not in detail
            assert "lockuser" not in detail


def test_a_name_that_is_an_address_is_the_clients_own() -> None:
    error = AcquireTimeout("acquire 'https://shop/1': still held after 3 s", name="https://shop/1")
    assert "still held" in problem_of(error).detail
