"""A primitive of its own shape is its folder, a factory and an entry: `quota/`, which no file of pawlock names."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import pawlock
from pawlock.metrics.prometheus import instrument
from tests.conformance.suite import APIS, Api, broken, run
from tests.conformance.suite.checks import CHECKS
from tests.conformance.suite.world import World, drive, settle
from tests.support.servers import Server
from tests.unit.conformance.quota import checks
from tests.unit.conformance.quota.entry import ENTRY, quota

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(__file__).parent / "quota"


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    checks.know()
    yield
    checks.forget()


def test_it_is_one_folder_that_no_file_of_pawlock_names() -> None:
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".lua", ".toml", ".acl"}]
    # What etcd calls its quota is another one.
    own = [path for path in sources if path.parent.name != "etcd"]
    assert [str(path) for path in own if "quota" in path.read_text(encoding="utf-8").lower()] == []
    assert len(sources) > 250
    files = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.suffix in {".py", ".lua"}}
    assert files == {
        "__init__.py",  # its requests, its answers
        "take.lua",
        "inspect.lua",
        "operation.py",  # what is done with them
        "aio/quota.py",  # its class
        "sync/quota.py",  # written from that
        "entry.py",  # its plan, its factory, its entry
        "checks.py",  # what it promises
    }


def test_its_class_of_threads_is_written_from_that_of_asyncio() -> None:
    spec = importlib.util.spec_from_file_location("make_sync", ROOT / "tools/make_sync.py")
    assert spec is not None
    assert spec.loader is not None
    make: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = make
    spec.loader.exec_module(make)
    wanted = make.sync_of((FOLDER / "aio/quota.py").read_text(encoding="utf-8"), "quota")
    assert (FOLDER / "sync/quota.py").read_text(encoding="utf-8") == wanted


@pytest.mark.parametrize("api", APIS)
def test_the_conformance_suite_judges_it(valkey: Server, api: Api) -> None:
    results = run(valkey.url, ["quota"], [api])
    assert {one.check for one in results} == {one.__name__ for one in checks.PROMISES}
    assert not broken(results), broken(results)


def test_the_conformance_suite_finds_it_broken(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that counts a request as often as it comes."""
    from tests.unit.conformance import quota as module
    from tests.unit.conformance.toy import Edit, edited

    take = module.Quota.take
    forgetful = (Edit("if seen then", "if false then"),)
    monkeypatch.setattr(module.Quota, "take", lambda *args: edited(forgetful, take(*args)))
    results = run(valkey.url, ["quota"], only=["a_repeated_request_takes_once"])
    assert [one.error is not None for one in results] == [True, True]


@pytest.mark.parametrize("api", APIS)
def test_clients_use_list_and_revive_it(valkey: Server, api: Api) -> None:
    async def whole() -> None:
        world = World(valkey.url, ENTRY, api)
        try:
            client = world.client()
            made = quota(client, "q", 3, per=60)
            assert await settle(made.take(2)) == 1
            (listed,) = await settle(client.locks())
            assert (listed.kind, listed.name, listed.count) == ("quota", "q", 2)
            assert (await settle(client.inspect("q"))).held_as == "quota"
            again = pickle.loads(pickle.dumps(made))
            assert type(again) is type(made)
            assert await settle(again.left()) == 1
            await settle(again._client.close())
            with pytest.raises(pawlock.LimitMismatch, match="limit=3, and this client has 4"):
                await settle(quota(client, "q", 4, per=60).take(3))
            with pytest.raises(pawlock.AcquireTimeout):
                await settle(made.take(2, timeout=0.1))
            with pytest.raises(pawlock.ConfigurationError, match="unknown option ttl"):
                quota(client, "q", 3, ttl=1)
            # Nobody holds it that an operator could take it from.
            with pytest.raises(pawlock.ConfigurationError, match="kind must be one of lock, semaphore"):
                await settle(client.force_release("q", "quota", reason="a test"))
        finally:
            await world.close()

    if api == "asyncio":
        import asyncio

        asyncio.run(whole())
    else:
        drive(whole())


def test_independent_masters_refuse_it() -> None:
    masters = [f"redis://127.0.0.1:{port}/0" for port in (1, 2, 3)]
    with pawlock.connect(masters) as client, pytest.raises(pawlock.NotSupported, match="quota is not safe"):
        quota(client, "q", 3)


def test_metrics_and_lists_of_leases_leave_it_out() -> None:
    registry = CollectorRegistry()
    with pawlock.connect("redis://127.0.0.1:1/0") as client:
        instrument(client, registry=registry)
    kinds = {sample.labels.get("kind") for metric in registry.collect() for sample in metric.samples}
    assert {"lock", "rwlock.read", "election", "once"} <= kinds
    assert "quota" not in kinds


def test_nothing_of_it_stays() -> None:
    checks.forget()
    assert not {one.__name__ for one in checks.PROMISES} & CHECKS.keys()
    with pawlock.connect("redis://127.0.0.1:1/0") as client:
        made = quota(client, "q", 3)
        with pytest.raises(AttributeError):
            pickle.loads(pickle.dumps(made))
