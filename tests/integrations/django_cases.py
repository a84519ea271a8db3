"""What ``pawlock.integrations.django`` does, run in a process of its own with one version of Django: ``python FILE URL``.

Django can be set up once per process, and with one version.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

URL = sys.argv[1]
folder = tempfile.mkdtemp(prefix="pawlock-t-")
os.environ |= {
    "DJANGO_SETTINGS_MODULE": "tests.integrations.django_site.settings",
    "SITE_DATABASE": str(Path(folder) / "site.db"),
    "SITE_LOCKS": URL,
}

import django  # noqa: E402 - the settings are read at its set-up

django.setup()

from django.contrib.auth.models import Permission, User  # noqa: E402 - as above
from django.core.management import CommandError, call_command  # noqa: E402
from django.db import connection, connections, transaction  # noqa: E402
from django.db.models import F  # noqa: E402
from django.test import Client as Browser  # noqa: E402
from django.test import TestCase  # noqa: E402
from django.test.utils import override_settings  # noqa: E402

import pawlock  # noqa: E402
from pawlock.integrations.django import async_client, client, lock  # noqa: E402
from pawlock.integrations.django._checks import check_locks  # noqa: E402
from tests.integrations.django_site.management.commands import load  # noqa: E402
from tests.integrations.django_site.models import Import, Stock, Tea  # noqa: E402
from tests.nightly.apps.rig import until  # noqa: E402

other = pawlock.connect(URL, namespace="site")
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
            assert [one.id for one in check_locks()] == ["pawlock.W001"]
        finally:
            del os.environ["PAWLOCK_URL"]


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
            with lock("order", until="commit") as lease:
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
def a_command_runs_once() -> None:
    said = io.StringIO()
    with other.lock("import:prices"):
        call_command("load", "prices", stdout=said)
        assert said.getvalue() == "skipped: 'import:prices' is held by another client\n"
        call_command("load", "others", stdout=said)
        assert said.getvalue().endswith("loaded\n")
        load.Command.on_contended = "raise"
        raises(CommandError, "held by another", call_command, "load", "prices")
        load.Command.on_contended, load.Command.lock_options = "wait", {"timeout": 0.1}
        raises(CommandError, "LOCK_TIMEOUT", call_command, "load", "prices")
    call_command("load", "prices", stdout=said)
    load.Command.on_contended, load.Command.lock_options = "skip", {}
    assert [one.fence > 0 for one in Import.objects.filter(source="prices")] == [True]
    load.Command.lock = "import:{sources}"
    raises(pawlock.ConfigurationError, "sources", call_command, "load", "prices")
    load.Command.lock = "import:{source}"


@case
def the_checks_find_what_is_wrong() -> None:
    assert check_locks() == []
    cache = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": URL}
    with override_settings(CACHES={"default": cache}):
        assert [one.id for one in check_locks()] == ["pawlock.W003"]
    with override_settings(CACHES={"default": {**cache, "KEY_PREFIX": "site"}}):
        assert [one.id for one in check_locks()] == ["pawlock.W002", "pawlock.W003"]
    with override_settings(CACHES={"default": {**cache, "LOCATION": "redis://elsewhere:6379/1"}}):
        assert check_locks() == []
    with override_settings(PAWLOCK={"URL": "redis://127.0.0.1:1"}):
        assert [one.id for one in check_locks()] == ["pawlock.W001"]
    for wrong in ({"URL": ""}, {"URL": URL, "TTTL": 3}, {"URL": "nowhere"}):
        with override_settings(PAWLOCK=wrong):
            assert [one.id for one in check_locks()] == ["pawlock.E001"], wrong
    call_command("check")


@case
def the_admin_lists_holders_and_releases_with_a_reason() -> None:
    User.objects.create_superuser("root", password="x")
    viewer = User.objects.create_user("viewer", password="x", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_lock"))
    User.objects.create_user("nobody", password="x", is_staff=True)
    page = "/admin/pawlock/lock/"
    lease = other.lock("order:{{7}}").acquire()
    until("it is listed", lambda: [one.name for one in client().locks()] == ["order:{7}"])
    browser = Browser()
    assert browser.login(username="nobody", password="x")
    assert browser.get(page).status_code == 403
    assert browser.login(username="viewer", password="x")
    shown = browser.get(page).content.decode()
    assert "order:{7}" in shown
    assert "Force-release" not in shown
    taken = {"name": "order:{7}", "reason": "the worker hangs"}
    assert browser.post(page, taken).status_code == 403
    assert browser.login(username="root", password="x")
    assert "Locks" in browser.get("/admin/").content.decode()
    assert "Give a reason" in browser.post(page, {"name": "order:{7}"}, follow=True).content.decode()
    assert not lease.lost
    done = browser.post(page, taken, follow=True).content.decode()
    assert "was released" in done
    assert "the worker hangs (by root)" in done
    until("it is lost", lambda: bool(lease.lost))
    (entry,) = [one for one in client().audit() if one.name == "order:{7}"]
    assert (entry.name, entry.text) == ("order:{7}", "the worker hangs (by root)")
    from django.contrib.admin.models import LogEntry

    assert "the worker hangs" in LogEntry.objects.get(object_id="order:{7}").change_message
    raises(pawlock.LeaseLost, "taken", lease.check)
    assert "Nobody held" in browser.post(page, taken, follow=True).content.decode()
    changed = pawlock.Forced("order:{7}", released=False, holder="web-1:7/main", fence=None)
    with patch.object(pawlock.Client, "force_release", return_value=changed):
        assert "now held by web-1:7/main" in browser.post(page, taken, follow=True).content.decode()
    with override_settings(PAWLOCK={"URL": "redis://127.0.0.1:1", "UNAVAILABLE_AFTER": 0.2}):
        assert "cannot be asked" in browser.get(page).content.decode()
        client().close()


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


call_command("migrate", verbosity=0)
with connection.schema_editor() as editor:
    for model in (Import, Stock, Tea):
        editor.create_model(model)
for one in CASES:
    one()
    print(one.__name__, flush=True)
connection.close()
client().close()
other.close()
print(len(CASES), "cases", django.get_version())
