"""``pawlock.integrations.celery.Unique``: at most one of equal tasks is queued or running. Delivered by hand."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, chain, chord
from celery.app.trace import build_tracer
from celery.exceptions import Ignore, Reject
from celery.result import EagerResult
from celery.signals import task_revoked

import pawlock
from pawlock.integrations.celery import Unique, client
from tests.support.proxy import Proxy
from tests.support.servers import Server


class Shop:
    """An application whose broker is in memory, and the worker's part of it: each message is delivered by hand.

    Attributes:
        app: The application.
        ran: The fencing tokens of the runs, with what they were called with.
    """

    def __init__(self, url: str) -> None:
        self.app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
        self.app.conf.task_default_queue = uuid.uuid4().hex
        self.app.conf.pawlock = {"url": url}
        self.ran: list[tuple[Any, int]] = []
        self.during: Callable[[Any], object] = lambda task: None

    def task(self, **options: Any) -> Any:
        """A task that notes its fencing token and then does what ``during`` says."""

        def work(task: Any, number: int, word: str = "a") -> str:
            self.ran.append((number, task.lease.fence))
            self.during(task)
            return f"{number}{word}"

        made = self.app.task(
            base=Unique, bind=True, name="shop.work", shared=False, **{"run_ttl": 1, **options}
        )(work)
        self.app.finalize()
        return made

    def messages(self) -> list[Any]:
        """Take all messages out of the queue."""
        found = []
        with self.app.connection_for_read() as connection:
            queue = connection.SimpleQueue(self.app.conf.task_default_queue)
            while queue.qsize():
                message = queue.get_nowait()
                message.ack()
                found.append(message)
            queue.close()
        return found

    def deliver(self, message: Any) -> tuple[str, Any]:
        """Run a message as a worker does; its state and result."""
        args, kwargs, embed = message.payload
        headers = message.headers
        request = {**headers, "args": args, "kwargs": kwargs, "is_eager": False, "delivery_info": {}, **embed}
        task = self.app.tasks[headers["task"]]
        found = build_tracer(task.name, task, app=self.app)(headers["id"], args, kwargs, request)
        if found.info is None:
            return "SUCCESS", found.retval
        return found.info.state, found.info.retval

    def held(self, task: Any, *args: object) -> bool:
        return bool(client(self.app).inspect(task.unique_name(args)).held)


def whose() -> int:
    return os.getpid()


def named(day: object) -> str:
    return str(day)


@pytest.fixture
def shop(server: Server) -> Iterator[Shop]:
    found = Shop(server.url)
    yield found
    client(found.app).close()


def test_one_lease_from_apply_async_to_the_end_of_the_run(shop: Shop, server: Server) -> None:
    task = shop.task()
    first = task.delay(1)
    fence = client(shop.app).inspect(task.unique_name((1,))).fence
    again, other = task.delay(1), task.delay(2)
    assert (again.state, again.get()) == ("IGNORED", None)
    assert other.state == "PENDING"
    messages = shop.messages()
    assert [one.headers["id"] for one in messages] == [first.id, other.id]
    during: list[Any] = []
    shop.during = lambda task: during.append((task.delay(1).state, task.lease.ttl))
    assert shop.deliver(messages[0]) == ("SUCCESS", "1a")
    assert shop.ran == [(1, fence)], "one fencing token throughout"
    assert during == [("IGNORED", 1.0)], "renewed by the run's own TTL"
    assert not shop.held(task, 1)
    assert server.command("EXISTS", f"pawlock:{{{task.unique_name((1,))}}}:task") == 0
    assert task.delay(1).state == "PENDING"


def test_what_happens_to_a_duplicate_is_chosen(shop: Shop) -> None:
    task = shop.task(on_duplicate="raise")
    first = task.delay(1)
    with pytest.raises(pawlock.NotAcquired, match=first.id):
        task.delay(1)


def test_the_existing_task_is_returned_queued_and_running(shop: Shop) -> None:
    task = shop.task(on_duplicate="existing", keep=60)
    first = task.delay(1)
    assert task.delay(1).id == first.id
    found: list[str] = []

    def look(task: Any) -> None:
        found.append(task.delay(1).id)

    shop.during = look
    (message,) = shop.messages()
    assert shop.deliver(message)[0] == "SUCCESS"
    assert found == [first.id]
    assert task.delay(1).id == first.id, "kept"
    assert task.delay(1).get(timeout=5) == "1a"
    client(shop.app).force_release(task.unique_name((1,)), reason="a test")
    assert task.delay(1).id != first.id


def test_a_lock_of_something_else_has_no_task(shop: Shop) -> None:
    task = shop.task(on_duplicate="existing")
    with client(shop.app).lock(task.unique_name((1,))), pytest.raises(pawlock.NotAcquired, match="unknown"):
        task.delay(1)


def test_after_a_run_that_succeeded_it_is_kept_and_after_one_that_failed_not(shop: Shop) -> None:
    task = shop.task(keep=60)
    task.delay(1)
    shop.deliver(*shop.messages())
    assert task.delay(1).state == "IGNORED"
    left = client(shop.app).inspect(task.unique_name((1,))).ttl_left
    assert left is not None
    assert 30 < left <= 60

    def fail(_task: object) -> None:
        raise ValueError

    shop.during = fail
    task.delay(2)
    assert shop.deliver(*shop.messages())[0] == "FAILURE"
    assert task.delay(2).state == "PENDING"


def test_which_arguments_tell_tasks_apart(shop: Shop) -> None:
    every = shop.task()
    assert every.unique_name((1,)) == every.unique_name((), {"word": "a", "number": 1})
    assert every.unique_name((1,)) != every.unique_name((1, "b"))
    long, odd = every.unique_name((1, "b" * 500)), every.unique_name((1, "{b}\0é"))
    assert long != odd
    assert len(long.encode()) < 200
    moment = datetime(2026, 11, 23, tzinfo=UTC)
    assert every.unique_name((moment,)) == every.unique_name((datetime(2026, 11, 23, tzinfo=UTC),))
    with pytest.raises(pawlock.ConfigurationError, match="unique_on"):
        every.unique_name((object(),))


def test_the_arguments_that_tell_tasks_apart_are_chosen(shop: Shop) -> None:
    task = shop.task(unique_on=["number"])
    assert task.delay(1, "a").state == "PENDING"
    assert task.delay(1, word="b").state == "IGNORED"
    with pytest.raises(TypeError):
        task.delay()


def test_what_can_never_work_is_refused_where_the_task_is_defined(shop: Shop) -> None:
    for options in (
        {"on_duplicate": "wait"},
        {"unique_while": "sent"},
        {"unique_while": "running", "on_duplicate": "existing"},
        {"unique_on": "number"},
        {"run_ttl": 0},
        {"keep": -1},
    ):
        with pytest.raises(pawlock.ConfigurationError):
            shop.task(**options)
    with pytest.raises(pawlock.ConfigurationError, match="no argument 'nmber'"):
        shop.task(unique_on=["nmber"]).delay(1)


def test_a_message_that_is_delivered_again_takes_the_lock_anew(shop: Shop, server: Server) -> None:
    """The process of the first run died: it left the lock to its TTL."""
    task = shop.task()
    task.delay(1)
    (message,) = shop.messages()
    with pawlock.connect(server.url) as dead:
        left = dead.adopt(message.headers["pawlock_ticket"], ttl=0.5, renew=False)
        assert shop.deliver(message) == ("SUCCESS", "1a")
        assert shop.ran[0][1] > left.fence


def test_a_message_that_is_delivered_again_while_it_runs_is_dropped(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As brokers do after their visibility timeout: no second run, and no state beside the first one's."""
    monkeypatch.setattr("pawlock.integrations.celery._unique._SLACK", 0.1)
    task = shop.task(run_ttl=1.2)
    task.delay(1)
    (message,) = shop.messages()
    second: list[Any] = []

    def again(_task: object) -> None:
        shop.during = lambda task: None
        thread = threading.Thread(target=lambda: second.append(shop.deliver(message)))
        thread.start()
        thread.join()

    shop.during = again
    assert shop.deliver(message)[0] == "SUCCESS"
    assert second[0][0] == "IGNORED"
    assert isinstance(second[0][1], Ignore)
    assert len(shop.ran) == 1


def test_a_message_that_waited_for_too_long_is_the_duplicate(shop: Shop) -> None:
    task = shop.task(queue_ttl=0.2)
    task.delay(1)
    (old,) = shop.messages()
    while shop.held(task, 1):
        pass
    task.delay(1)
    assert shop.deliver(old) == ("SUCCESS", None)
    (new,) = shop.messages()
    task.queue_ttl = 60
    assert shop.deliver(new)[0] == "SUCCESS"


def test_a_retry_takes_the_lease_along(shop: Shop) -> None:
    task = shop.task(default_retry_delay=60)

    def retry(task: Any) -> None:
        if task.request.retries < 2:
            raise task.retry()

    shop.during = retry
    first = task.delay(1)
    for _ in range(2):
        (message,) = shop.messages()
        assert shop.deliver(message)[0] == "RETRY"
        assert task.delay(1).state == "IGNORED"
        left = client(shop.app).inspect(task.unique_name((1,))).ttl_left
        assert left is not None
        assert left > 3600, "the time in the queue, and the delay"
    (message,) = shop.messages()
    assert message.headers["id"] == first.id
    assert shop.deliver(message) == ("SUCCESS", "1a")
    assert len({fence for _, fence in shop.ran}) == 1
    assert not shop.held(task, 1)


def test_a_task_that_gives_up_its_message_frees_the_lock(shop: Shop) -> None:
    task = shop.task()

    def reject(_task: object) -> None:
        raise Reject("later", requeue=True)

    shop.during = reject
    task.delay(1)
    (message,) = shop.messages()
    assert shop.deliver(message)[0] == "REJECTED"
    assert not shop.held(task, 1)
    shop.during = lambda task: None
    assert shop.deliver(message)[0] == "SUCCESS"


def test_what_cannot_be_sent_holds_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    task = shop.task()

    def fail(*_args: object, **_options: object) -> None:
        raise OSError("the broker is away")

    with monkeypatch.context() as broken:
        broken.setattr(shop.app, "send_task", fail)
        with pytest.raises(OSError, match="away"):
            task.delay(1)
    assert not shop.held(task, 1)


def test_a_message_that_is_revoked_frees_the_lock(shop: Shop) -> None:
    task = shop.task()
    task.delay(1)
    (message,) = shop.messages()

    class Request:
        get = staticmethod(message.headers.get)

    task_revoked.send(sender=task, request=Request, terminated=False, signum=None, expired=False)
    assert not shop.held(task, 1)


def test_a_message_that_expires_holds_the_lock_until_then(shop: Shop) -> None:
    task = shop.task()
    task.apply_async((1,), expires=5)
    task.apply_async((2,), expires=datetime.now(UTC) + timedelta(seconds=5))
    task.apply_async((3,), countdown=600)
    task.apply_async((4,), eta=datetime.now(UTC) + timedelta(seconds=600))
    left = [client(shop.app).inspect(task.unique_name((number,))).ttl_left or 0 for number in (1, 2, 3, 4)]
    assert [4 < one <= 6 for one in left[:2]] == [True, True]
    assert [4190 < one <= 4200 for one in left[2:]] == [True, True]


def test_in_a_group_a_duplicate_is_sent_and_does_nothing(shop: Shop) -> None:
    """Else a chord would wait for it forever."""
    task = shop.task()
    done = shop.app.task(name="shop.done", shared=False)(named)
    shop.app.finalize()
    task.delay(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shop.app.backend, "apply_chord", lambda *_args, **_options: None)
        chord([task.s(1), task.s(2)])(done.s())
    found = [shop.deliver(message) for message in shop.messages()]
    assert found == [("SUCCESS", "1a"), ("SUCCESS", None), ("SUCCESS", "2a")]
    assert [number for number, _ in shop.ran] == [1, 2]


def test_in_a_chain_a_duplicate_is_sent_and_fails(shop: Shop) -> None:
    task = shop.task(on_duplicate="raise", unique_on=[])
    task.delay(1)
    chain(task.s(2), task.si(3)).apply_async()
    first, second = shop.messages()
    assert shop.deliver(second)[0] == "FAILURE"
    assert shop.deliver(first)[0] == "SUCCESS"
    assert shop.messages() == [], "the chain ended"


def test_the_body_of_a_chord_that_is_a_duplicate_is_sent(shop: Shop) -> None:
    """Else who waits for the chord would wait forever: a body has its id before it is sent."""
    task = shop.task(unique_on=[])
    first = task.delay(1)
    body = task.si(2)
    awaited = body.freeze()
    body.apply_async()
    messages = shop.messages()
    assert [one.headers["id"] for one in messages] == [first.id, awaited.id]
    assert [shop.deliver(one) for one in messages[::-1]] == [("SUCCESS", None), ("SUCCESS", "1a")]
    assert len(shop.ran) == 1


@pytest.mark.parametrize("how", ["retry", "replace"])
def test_a_task_that_sends_itself_with_other_arguments_is_another_one(shop: Shop, how: str) -> None:
    task = shop.task()

    def go_on(task: Any) -> None:
        shop.during = lambda task: None
        raise task.retry(args=(2,)) if how == "retry" else task.replace(task.s(2))

    shop.during = go_on
    first = task.delay(1)
    assert shop.deliver(*shop.messages())[0] == ("RETRY" if how == "retry" else "IGNORED")
    assert (shop.held(task, 1), shop.held(task, 2)) == (False, True)
    assert task.delay(2).state == "IGNORED"
    (message,) = shop.messages()
    assert (message.headers["id"], shop.deliver(message)) == (first.id, ("SUCCESS", "2a"))
    assert len({fence for _, fence in shop.ran}) == 2
    assert not shop.held(task, 2)


def test_a_retry_with_the_arguments_of_another_task_ends(shop: Shop) -> None:
    task = shop.task()
    other = task.delay(2)

    def go_on(task: Any) -> None:
        raise task.retry(args=(2,))

    shop.during = go_on
    task.delay(1)
    queued, message = shop.messages()
    assert shop.deliver(message)[0] == "RETRY"
    (message,) = shop.messages()
    assert shop.deliver(message) == ("SUCCESS", None)
    shop.during = lambda task: None
    assert (queued.headers["id"], shop.deliver(queued)) == (other.id, ("SUCCESS", "2a"))


def test_while_running_only(shop: Shop) -> None:
    task = shop.task(unique_while="running")
    for _ in range(3):
        task.delay(1)
    first, second, third = shop.messages()
    inner: list[Any] = []

    def meanwhile(_task: object) -> None:
        shop.during = lambda task: None
        thread = threading.Thread(target=lambda: inner.append(shop.deliver(second)))
        thread.start()
        thread.join()

    shop.during = meanwhile
    assert shop.deliver(first) == ("SUCCESS", "1a")
    assert inner == [("SUCCESS", None)]
    assert shop.deliver(third) == ("SUCCESS", "1a")
    assert len(shop.ran) == 2


def test_eager_tasks_hold_the_lock_while_they_run(shop: Shop) -> None:
    shop.app.conf.task_always_eager = True
    task = shop.task()
    inner: list[Any] = []

    def meanwhile(task: Any) -> None:
        shop.during = lambda task: None
        inner.append((task.delay(1).result, task.delay(2).result, shop.held(task, 1)))

    shop.during = meanwhile
    assert task.delay(1).result == "1a"
    assert inner == [(None, "2a", True)]
    assert not shop.held(task, 1)


def test_an_eager_task_retries(shop: Shop) -> None:
    task = shop.task()

    def retry(task: Any) -> None:
        if task.request.retries < 1:
            raise task.retry()

    shop.during = retry
    found = task.apply((1,))
    assert isinstance(found, EagerResult)
    assert found.result == "1a"
    assert len(shop.ran) == 2


def test_a_call_as_a_function_is_one(shop: Shop) -> None:
    plain = shop.app.task(base=Unique, name="shop.plain", shared=False)(whose)
    shop.app.finalize()
    assert plain() == os.getpid()
    with pytest.raises(pawlock.NotHeld):
        print(plain.lease)


def test_a_lease_that_is_lost_fails_the_task(shop: Shop, server: Server) -> None:
    task = shop.task(run_ttl=1.2)

    def lose(task: Any) -> None:
        server.command("DEL", f"pawlock:{task.unique_name((1,))}")
        task.lease.lost.wait(10)

    shop.during = lose
    task.delay(1)
    state, error = shop.deliver(*shop.messages())
    assert state == "FAILURE"
    assert isinstance(error, pawlock.LeaseLost)
    backend = shop.app.backend
    stored = json.loads(backend.encode(backend.prepare_exception(error, "json")))
    fetched = backend.exception_to_python(stored)
    assert (type(fetched), vars(fetched), str(fetched)) == (pawlock.LeaseLost, vars(error), str(error))


def test_a_lock_server_that_is_away_refuses_to_send_and_has_the_run_retried(
    shop: Shop, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = shop.task()
    with Proxy(server) as proxy:
        shop.app.conf.pawlock = {"url": proxy.url, "unavailable_after": 0.2}
        task.delay(1)
        (message,) = shop.messages()
        proxy.refuse()
        proxy.reset_all()
        assert shop.deliver(message)[0] == "RETRY"
        with pytest.raises(pawlock.BackendUnavailable):
            task.delay(2)
        client(shop.app).close(timeout=0.1)
    shop.app.conf.pawlock = {"url": server.url}
    (message,) = shop.messages()
    assert shop.deliver(message) == ("SUCCESS", "1a")


def test_dates_are_taken(shop: Shop) -> None:
    plain = shop.app.task(base=Unique, name="shop.day", shared=False)(named)
    shop.app.finalize()
    assert plain.unique_name((date(2026, 11, 23),)) != plain.unique_name((date(2026, 11, 24),))
