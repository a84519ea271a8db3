"""Steps that no client of pawlock sends are refused, and the fuzzer of who may end what with steps among its requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.primitive import Primitive
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.permits import Permits
from tests.service.rig import App, Tokens
from tests.service.steps import send, step

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [7, 1000, 1001, 1002])
def test_whoever_did_not_acquire_it_cannot_end_it_by_a_step(attacked: Callable[..., None], seed: int) -> None:
    attacked(seed, 1500, step)


@pytest.mark.parametrize("kind", ["lock", "rwlock"])
def test_one_client_cannot_fill_the_queue_of_a_name(
    app: Callable[[], App], tokens: Tokens, kind: str
) -> None:
    tokens.add("few", roles=["acquire"], limits={"waiters": 3, "max_ttl": 3000})
    service = app()
    name: Primitive = Mutex("lock", "a", "pawlock:a")
    if kind == "rwlock":
        name = Permits("rwlock", "a", "pawlock:a", "rwlock", "x")
    held = service.acquire("a", "lock" if kind == "lock" else "rwlock_write")
    assert held.status == 200

    def queue(number: int, ticket_ms: int) -> Request:
        token = f"{number:024d}@host:1/few"
        return name.acquire(
            token, 3_000_000, ticket_ms, wait=True, block=1, channel="-", max_waiters=10_000_000
        )

    replies = send(service, "few", *[queue(number, 60_000) for number in range(10)]).body["replies"]
    assert [reply[0] for reply in replies] == ["Q"] * 3 + ["F"] * 7
    # Nor stay in it for long without a sign of life: a hand-off would grant it the name for as long.
    refused = send(service, "few", queue(99, 60_001))
    assert (refused.status, refused.body["code"]) == (422, "TTL_LIMIT")


def test_steps_cannot_reach_keys_of_others(service: App) -> None:
    def answer(words: list[str]) -> tuple[int, str]:
        script = Mutex("lock", "a", "pawlock:a").leave("t" * 24, 0, 0).script
        body = {"calls": [{"script": script.sha, "words": words}]}
        told = service.ask("POST", "/v1/ns/pawlock/calls", body)
        return told.status, told.body.get("code", "")

    token = "t" * 24 + "@host:1/a"

    def of(key: str, queue: str = "queue") -> list[str]:
        helpers = ["fence", f"1:{queue}", "1:tickets", f"1:dead:{token}", "1:holds"]
        return [key, *[f"{{{key}}}:{one}" for one in helpers], token, "0", "0", "", "86400000"]

    assert answer(of("pawlock:a")) == (200, "")
    assert answer(of("other:a")) == (403, "FORBIDDEN")
    assert answer(of("pawlock:{x}:fence")) == (403, "FORBIDDEN")
    assert answer(of("pawlock:%election:a")) == (403, "FORBIDDEN")
    assert answer(of("pawlock:a", "tickets")) == (422, "BAD_CALL")
    assert answer([*of("pawlock:a")[:-3], "-1", "", "86400000"]) == (422, "BAD_CALL")
    assert answer([*of("pawlock:a")[:-1], "86400001"])[0] == 422
    assert answer(of("pawlock:a")[:-1]) == (422, "BAD_CALL")
    unknown = {"calls": [{"script": "0" * 40, "words": []}]}
    assert service.ask("POST", "/v1/ns/pawlock/calls", unknown).status == 404
