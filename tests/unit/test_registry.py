"""The registry names what is there: methods of both clients."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import pawlock
from pawlock.metrics import observe
from pawlock.metrics._shared import kinds as kinds_of_leases
from pawlock.primitives.registry import REGISTRY, Entry, register, unregister
from tests.support.refusal import case
from tests.support.servers import Server


@pytest.fixture
def toy() -> Iterator[Entry]:
    """An entry that is forgotten again."""
    yield Entry("toy", "A toy.", "lock", part="name", args=())
    unregister("toy")


def test_an_entry_is_made_by_both_clients_and_what_it_points_at_exists() -> None:
    for entry in REGISTRY.values():
        with case(entry.kind):
            assert isinstance(entry.factory, str)
            for door in (pawlock.connect, pawlock.connect_async):
                client = door("redis://127.0.0.1:1/0")
                made = entry.make(client, "some name")
                assert hasattr(made, "acquire") or not entry.leases
                assert "some name" in repr(made)
            assert entry.summary.endswith(".")


def test_a_registered_entry_makes_what_its_factory_says(toy: Entry) -> None:
    register(toy)
    register(replace(toy))
    assert REGISTRY["toy"].make(pawlock.connect("redis://127.0.0.1:1/0"), "n") == "n"
    with pytest.raises(pawlock.ConfigurationError, match="registered already"):
        register(replace(toy, summary="Another toy."))
    unregister("toy")
    unregister("toy")
    assert "toy" not in REGISTRY


def test_options_and_names_reach_the_factory() -> None:
    seen: list[tuple[Any, ...]] = []

    def factory(client: object, names: list[str], number: int, **options: object) -> object:
        seen.append((client, names, number, options))
        return toy

    toy = Entry("toy", "A toy.", factory, (3,), {"ttl": 1, "renew": False}, names=2)
    toy.make("client", "n", ttl=2)
    assert seen == [("client", ["n", "n.2"], 3, {"ttl": 2, "renew": False})]
    assert hash(toy) == hash(replace(toy))


def test_an_entry_that_contradicts_itself_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kind": "a b"}, "word of letters"),
        ({"kind": ""}, "word of letters"),
        ({"names": 0}, "at least 1"),
        ({"capacity": 0}, "at least 1"),
    ]
    for change, says in cases:
        with case(change, says), pytest.raises(pawlock.ConfigurationError, match=says):
            replace(REGISTRY["lock"], **change)


def test_the_kinds_of_the_metrics_are_those_that_clients_make(valkey: Server) -> None:
    class Kinds:
        def __init__(self) -> None:
            self.seen: set[str] = set()

        def acquired(self, kind: str, name: str, **more: object) -> None:
            self.seen.add(kind)

        def __getattr__(self, event: str) -> Any:
            return lambda *args, **more: None

    kinds = Kinds()
    with pawlock.connect(valkey.url) as client:
        observe(client, kinds)
        for entry in REGISTRY.values():
            if entry.leases:
                made = entry.make(client, f"kinds-{entry.kind}")
                with made.acquire(timeout=5):
                    pass
        with client.election("kinds-election").campaign(timeout=5):
            pass
        with client.once("kinds-once") as started:
            assert isinstance(started, pawlock.Started)
            started.finish()
    assert kinds.seen == set(kinds_of_leases())
