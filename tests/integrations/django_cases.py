"""What ``pawlock.integrations.django`` does, run in a process of its own with one version of Django: ``python FILE URL``.

Django can be set up once per process, and with one version.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

URL = sys.argv[1]
folder = tempfile.mkdtemp(prefix="pawlock-t-")
os.environ |= {
    "DJANGO_SETTINGS_MODULE": "tests.integrations.django_site.settings",
    "SITE_DATABASE": str(Path(folder) / "site.db"),
    "SITE_LOCKS": URL,
}

import django  # noqa: E402 - the settings are read at its set-up
import redis  # noqa: E402 - as below

django.setup()

from django.db import connection, connections, transaction  # noqa: E402 - as above
from django.db.models import F  # noqa: E402
from django.test import TestCase  # noqa: E402
from django.test.utils import override_settings  # noqa: E402

import pawlock  # noqa: E402
from pawlock.integrations.django import async_client, client, lock  # noqa: E402
from tests.integrations.django_site.models import Import, Stock, Tea  # noqa: E402
from tests.nightly.apps.rig import until  # noqa: E402

other = pawlock.connect(URL, namespace="site")
third = pawlock.connect(URL.rpartition("/")[0] + "/3", namespace="site")
plain = redis.Redis.from_url(URL)
plain.execute_command("ACL", "SETUSER", "cache", "on", ">secret", "~*", "&*", "+@all")
CASES: list[Any] = []


def case(function: Any) -> Any:
    CASES.append(function)
    return function


def raises(kind: type[BaseException], words: str, function: Any, *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except kind as error:
        if words not in str(error):
            raise AssertionError(error) from error
    else:
        raise AssertionError(f"no {kind.__name__}")


def free(name: str) -> bool:
    return not other.lock(name).locked()


@case
def one_client_for_the_process() -> None:
    assert client() is client()
    assert async_client() is async_client()
    first = client()
    with override_settings(PAWLOCK={"URL": URL, "NAMESPACE": "another"}):
        assert client() is not first
        with client().lock("a"):
            assert free("a"), "another namespace"
        client().close()
    with override_settings(PAWLOCK={"URL": URL, "TTTL": 3}):
        raises(pawlock.ConfigurationError, "unknown option", client)
    for made in (client, async_client):
        with override_settings(PAWLOCK={"URL": URL, "NAMESPAC": "another"}):
            raises(pawlock.ConfigurationError, "the setting PAWLOCK", made)
            raises(pawlock.ConfigurationError, "did you mean namespace?", made)
    with override_settings(PAWLOCK=["no"]):
        raises(pawlock.ConfigurationError, "dictionary", client)
    first.close()


@case
def the_server_is_that_of_the_cache() -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    caches = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    caches["shared"] = {"BACKEND": backend, "LOCATION": [URL, "redis://replica"]}  # type: ignore[dict-item]
    with override_settings(PAWLOCK={"NAMESPACE": "site"}, CACHES=caches):
        with client().lock("of the cache"):
            assert not free("of the cache")
        client().close()
    os.environ["PAWLOCK_URL"] = "redis://127.0.0.1:1"
    try:
        with override_settings(PAWLOCK={"UNAVAILABLE_AFTER": 0.2}, CACHES=caches):
            raises(pawlock.BackendUnavailable, "127.0.0.1:1", client().lock("of the environment").try_acquire)
            client().close()
    finally:
        del os.environ["PAWLOCK_URL"]


@case
def what_a_cache_is_told_beside_its_address_counts() -> None:
    bare = URL.rpartition("/")[0]
    pool: dict[str, Any] = {"username": "cache", "db": 3}
    found = {"django.core.cache.backends.redis.RedisCache": {"password": "secret", **pool}}
    if find_spec("django_redis") is not None:
        found["django_redis.cache.RedisCache"] = {"PASSWORD": "secret", "CONNECTION_POOL_KWARGS": pool}
    for backend, login in found.items():
        caches = {"default": {"BACKEND": backend, "LOCATION": bare, "OPTIONS": login}}
        with override_settings(PAWLOCK={"NAMESPACE": "site"}, CACHES=caches):
            with client().lock("of the cache"):
                assert free("of the cache"), "it is in another database"
                assert third.lock("of the cache").locked()
            assert "cache" in {row["user"] for row in plain.client_list()}
            client().close()


@case
def a_lock_lasts_until_the_commit() -> None:
    with transaction.atomic():
        with lock("order", until="commit") as lease:
            Import.objects.create(source="a", fence=lease.fence)
        assert not free("order"), "the block has ended, the transaction has not"
        with lock("block"):
            assert not free("block")
        assert free("block")
    assert free("order")
    assert Import.objects.filter(source="a").exists()


@case
def a_callback_of_the_transaction_neither_delays_nor_prevents_the_release() -> None:
    seen: list[bool] = []

    def fails() -> None:
        seen.append(free("order"))
        raise ValueError("a callback")

    kept: list[Exception] = []
    try:
        with transaction.atomic():
            transaction.on_commit(fails)
            with lock("order", until="commit"):
                assert not free("order")
    except ValueError as error:
        kept.append(error)  # its frames refer to the callbacks that were not called
    assert (seen, len(kept), free("order")) == ([True], 1, True)


@case
def a_commit_that_was_replaced_is_still_called() -> None:
    made: list[bool] = []

    def works() -> None:
        replaced = connections.create_connection("default")
        commit = replaced.commit

        def counted() -> None:
            commit()
            made.append(True)

        replaced.commit = counted
        connections["default"] = replaced
        with transaction.atomic(), lock("order", until="commit"):
            assert not free("order")
        made.append(free("order"))
        replaced.close()

    thread = threading.Thread(target=works)
    thread.start()
    thread.join()
    assert made == [True, True]


@case
def a_test_case_runs_the_callbacks_itself() -> None:
    with transaction.atomic():
        with TestCase.captureOnCommitCallbacks(execute=True), lock("order", until="commit"):
            assert not free("order")
        assert free("order")


@case
def and_until_the_rollback() -> None:
    class Wanted(Exception):
        pass

    def fails() -> None:
        with transaction.atomic(), lock("order", until="commit"):
            Import.objects.create(source="b")
            raise Wanted

    raises(Wanted, "", fails)
    assert free("order")
    with transaction.atomic():
        with lock("outer", until="commit"):
            raises(Wanted, "", fails)
        assert free("order"), "the savepoint was rolled back"
        assert not free("outer")
    assert free("outer")
    with transaction.atomic(), lock("order", until="commit"):
        transaction.set_rollback(True)
    assert free("order")
    assert not Import.objects.filter(source="b").exists()
    raises(pawlock.ConfigurationError, "transaction.atomic", lock("order", until="commit").__enter__)
    assert not getattr(connection, "_pawlock_leases", None)


@case
def a_transaction_that_outlives_its_lease_is_not_committed() -> None:
    def outlives(inside: bool) -> None:  # noqa: FBT001
        with transaction.atomic():
            with lock("order", until="commit", ttl=2) as lease:
                Import.objects.create(source="late")
                if inside:
                    lose("order", lease)
            if not inside:
                lose("order", lease)

    for inside in (True, False):
        raises(pawlock.LeaseLost, "order", outlives, inside)
        assert not Import.objects.filter(source="late").exists()
        assert connection.get_autocommit()
    with transaction.atomic(), lock("order", until="commit"):
        Import.objects.create(source="after")
    assert Import.objects.filter(source="after").exists()


def lose(name: str, lease: pawlock.Lease) -> None:
    other.force_release(name, reason="a test")
    until("it is lost", lambda: bool(lease.lost))


@case
def requests_of_one_thread_share_a_connection() -> None:
    def views() -> None:
        for number in range(50):
            with lock(f"view:{number}"):
                pass

    def connections() -> int:
        import redis

        with redis.Redis.from_url(URL) as asking:
            return int(str(asking.info("stats")["total_connections_received"]))

    views()
    before = connections()
    worker = threading.Thread(target=views)
    worker.start()
    worker.join()
    views()
    assert connections() - before <= 4, "one for the new thread, and those that count"


@case
def rows_refuse_an_earlier_holder() -> None:
    tea = Stock.objects.create(name="tea", left=10)
    with lock("stock:tea") as first:
        assert tea.claim(first).fence == first.fence
    with lock("stock:tea") as second, transaction.atomic():
        assert tea.write(second, left=F("left") - 1, name="green tea").left == 9
        assert tea.name == "green tea"
    raises(pawlock.StaleFence, "already written", tea.write, first, left=0)
    raises(pawlock.StaleFence, "already written", tea.claim, first)
    raises(pawlock.StaleFence, "degraded", tea.write, 0, left=0)
    found = Stock.objects.get()
    assert (found.left, found.fence, str(found)) == (9, second.fence, "9 of green tea")
    assert tea.write(second).left == 9, "the same holder again"
    found.delete()
    raises(Stock.DoesNotExist, "no row", tea.write, second, left=1)


@case
def all_rows_are_written_or_none() -> None:
    Stock.objects.bulk_create([Stock(name=name, left=5) for name in "abc"])
    assert Stock.objects.filter(name="c").claim(9) == 1
    with transaction.atomic():
        raises(pawlock.StaleFence, "token 9, and 8", Stock.objects.filter(left=5).write, 8, left=0)
        assert Stock.objects.filter(left=5).count() == 3, "the transaction around it goes on"
        assert Stock.objects.filter(name="a").write(8, left=4) == 1
    assert Stock.objects.filter(left=5, name__in="ab").write(8, left=0) == 1
    assert Stock.objects.filter(name="nothing").write(8, left=0) == 0
    assert list(Stock.objects.order_by("name").values_list("left", "fence")) == [(4, 8), (0, 8), (5, 9)]
    raises(pawlock.ConfigurationError, "itself", Stock.objects.write, 9, fence=1)
    raises(pawlock.ConfigurationError, "several tables", Tea.objects.write, 9, left=1)
    Stock.objects.all().delete()


with connection.schema_editor() as editor:
    for model in (Import, Stock, Tea):
        editor.create_model(model)
for one in CASES:
    one()
    print(one.__name__, flush=True)
connection.close()
client().close()
other.close()
third.close()
plain.execute_command("ACL", "DELUSER", "cache")
plain.close()
print(len(CASES), "cases", django.get_version())
