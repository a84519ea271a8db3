"""``pawlock.integrations.celery.LeaderScheduler``: of several beats, the one that leads sends each task once."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis
from celery import Celery
from celery.beat import PersistentScheduler, Scheduler
from celery.schedules import crontab

import pawlock
from pawlock.integrations.celery import LeaderScheduler, Unique, client
from tests.integrations.celery_app import EVERY, slot
from tests.nightly.apps.rig import Rig, rig, until
from tests.support.groups import ClusterGroup
from tests.support.pace import pace
from tests.support.servers import Server, free_port

DAY = timedelta(days=1)


class Sender(Scheduler):  # type: ignore[misc] # Celery has no type marks
    """A scheduler that notes what it sends."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[str] = []
        super().__init__(**options)

    def send_task(self, name: str, *_args: object, **_options: object) -> None:
        self.sent.append(name)


Beat = Callable[..., Any]


@pytest.fixture
def beat(server: Server) -> Iterator[Beat]:
    """Makes beats of one application, each with a client of its own."""
    made: list[tuple[Any, Any]] = []

    def make(schedule: dict[str, Any], **options: Any) -> Any:
        app = Celery("shop", broker="memory://", set_as_current=False)
        app.conf.beat_schedule = schedule
        app.conf.timezone = "Europe/Berlin"
        app.conf.pawlock = {"url": server.url}
        app.conf.pawlock_beat = {"scheduler": Sender, "ttl": 2, **options}
        found = LeaderScheduler(app, max_interval=0.02)
        made.append((app, found))
        return found

    yield make
    for app, one in made:
        one.close()
        client(app).close()


def run(scheduler: Any, condition: Callable[[], object]) -> None:
    """Have it tick until something is true."""

    def look() -> object:
        scheduler.tick()
        return condition()

    until("a beat did it", look)


def leads(scheduler: Any) -> bool:
    return scheduler._known is not None and scheduler._known is scheduler._lease


def every(seconds: float) -> dict[str, Any]:
    return {"often": {"task": "often", "schedule": seconds}}


def test_one_of_two_beats_sends_and_the_other_follows_at_once(beat: Beat) -> None:
    one, two = beat(every(0.02)), beat(every(0.02))
    run(one, lambda: one.sent)
    for _ in range(5):
        one.tick()
        two.tick()
    assert two.sent == []
    fence = one._lease.fence
    one.close()
    run(two, lambda: two.sent)
    assert two._lease.fence > fence


def test_what_one_has_sent_the_next_does_not_send_again(beat: Beat) -> None:
    """It was started days ago, so that by its own count the task of each night is due."""
    schedule = {"nightly": {"task": "nightly", "schedule": crontab(hour="3", minute="0")}, **every(0.02)}
    old = datetime.now(UTC) - 3 * DAY
    one, two = beat(schedule), beat(schedule)
    for each in (one, two):
        each.schedule["nightly"].last_run_at = old
    run(one, lambda: "nightly" in one.sent)
    one.close()
    run(two, lambda: len(two.sent) > 3)
    assert one.sent.count("nightly") == 1
    assert "nightly" not in two.sent


def test_what_was_never_sent_is_counted_from_the_first_beat(beat: Beat) -> None:
    """Else an entry of every hour would never be sent where beats are replaced more often."""
    one = beat(every(3600))
    began = datetime.now(UTC) - timedelta(minutes=50)
    one.schedule["often"].last_run_at = began
    run(one, lambda: leads(one))
    one.close()
    two = beat(every(3600))
    run(two, lambda: leads(two))
    assert two.schedule["often"].last_run_at == began
    assert two.sent == []


def test_a_beat_that_was_paused_sends_nothing_once_another_one_led(beat: Beat, server: Server) -> None:
    """It has not noticed yet: by its own clock it leads, and the server refuses it."""
    one, two = beat(every(0.02), ttl=60), beat(every(0.02), ttl=60)
    run(one, lambda: one.sent)
    server.command("DEL", "pawlock:%election:beat:shop")
    run(two, lambda: two.sent)
    assert one._lease.state == "held"
    sent = len(one.sent)
    two._records.mirror()
    noted = two._records.last("often")
    one.tick()
    time.sleep(0.03)
    one.apply_entry(one.schedule["often"])
    assert len(one.sent) == sent
    assert not leads(one)
    two._records.mirror()
    assert two._records.last("often") == noted, "nor does it note anything"


def test_a_scheduler_that_keeps_a_file_is_wrapped(beat: Beat, tmp_path: Path) -> None:
    class Filed(PersistentScheduler):  # type: ignore[misc] # Celery has no type marks
        def __init__(self, **options: Any) -> None:
            super().__init__(schedule_filename=str(tmp_path / "schedule"), **options)

        sent: ClassVar[list[str]] = []

        def send_task(self, name: str, *_args: object, **_options: object) -> None:
            self.sent.append(name)

    one = beat(every(0.02), scheduler=Filed)
    run(one, lambda: len(one.sent) > 2)
    one.close()


def test_an_entry_that_is_loaded_again_with_an_old_time_is_not_sent_again(beat: Beat) -> None:
    """As by schedulers that keep their entries in a database, and write the time there now and then."""
    schedule = {"nightly": {"task": "nightly", "schedule": crontab(hour="3", minute="0")}}
    one = beat(schedule)
    old = datetime.now(UTC) - 3 * DAY
    one.schedule["nightly"].last_run_at = old
    run(one, lambda: one.sent)
    one.schedule["nightly"] = type(one.schedule["nightly"])(
        **{**vars(one.schedule["nightly"]), "last_run_at": old}
    )
    one._heap = None
    for _ in range(3):
        one.tick()
    assert one.sent == ["nightly"]


def test_each_election_has_a_record_of_its_own(beat: Beat, server: Server) -> None:
    names = ("a{", "a(", "a%7B")
    for one in [beat(every(0.02), name=name) for name in names]:
        run(one, one.sent.__len__)
    with contextlib.closing(redis.Redis.from_url(server.url)) as plain:
        assert len([*plain.scan_iter("*:sent")]) == len(names)


def test_a_server_that_forgets_has_nothing_sent_twice(beat: Beat, server: Server) -> None:
    schedule = {"nightly": {"task": "nightly", "schedule": crontab(hour="3", minute="0")}}
    one, two = beat(schedule), beat(schedule)
    for each in (one, two):
        each.schedule["nightly"].last_run_at = datetime.now(UTC) - 3 * DAY
    run(one, lambda: one.sent)
    run(two, lambda: two._records.last("nightly"))
    server.command("FLUSHALL")
    one.close()
    run(two, lambda: leads(two))
    for _ in range(5):
        two.tick()
    assert two.sent == []
    with contextlib.closing(redis.Redis.from_url(server.url)) as plain:
        assert plain.hlen("pawlock:{celery-beat:shop}:sent") == 1, "noted anew for the beats to come"
        assert 0 < plain.pttl("pawlock:{celery-beat:shop}:sent") <= 400 * 86_400_000


def test_a_record_that_fails_sends_nothing_and_is_read_anew(
    beat: Beat, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = beat(every(0.02))
    run(one, lambda: one.sent)

    def fail(*_args: object) -> None:
        raise redis.exceptions.ConnectionError("gone")

    sent, last = len(one.sent), one._records.last("often")
    with monkeypatch.context() as broken:
        broken.setattr(one._records, "note", fail)
        time.sleep(0.03)
        one.apply_entry(one.reserve(one.schedule["often"]))
    assert len(one.sent) == sent
    assert one._records.last("often") == last
    run(one, lambda: len(one.sent) > sent)


def test_a_clock_that_is_set_back_delays_nothing_by_as_much(beat: Beat) -> None:
    one = beat(every(0.05))
    run(one, lambda: one.sent)
    ahead = datetime.now(UTC) + timedelta(hours=1)
    one._records._sent["often"] = ahead
    one.schedule["often"].last_run_at = ahead
    one._heap = None
    one._offset += 3600
    sent = len(one.sent)
    run(one, lambda: len(one.sent) > sent)


def test_daylight_saving_moves_no_time(beat: Beat) -> None:
    """The hour that comes twice: what was sent in the first is not taken for the second."""
    one = beat(every(3600))
    entry = one.schedule["often"]
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # 02:30, and an hour later again 02:30
    one._records._sent["often"] = first
    one._anchor(entry)
    assert entry.last_run_at.timestamp() == first.timestamp()
    assert entry.last_run_at.utcoffset() == timedelta(hours=2)


def test_a_scheduler_that_is_only_looked_at_stands_for_nothing(server: Server) -> None:
    app = Celery("shop", broker=server.url, set_as_current=False)
    shown = LeaderScheduler(app, lazy=True)
    assert isinstance(shown, Scheduler)
    assert shown._thread is None
    shown.close()
    assert client(app) is client(app)
    with client(app).lock("of the broker's server"):
        assert server.command("EXISTS", "pawlock:of the broker's server") == 1
    client(app).close()


def test_a_broker_may_have_options_of_kombus_pool(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAWLOCK_URL", raising=False)
    tls = Celery("shop", broker="rediss://h/1?ssl_cert_reqs=CERT_NONE&socket_timeout=5", set_as_current=False)
    client(tls).close()
    missing = Celery(
        "shop", broker="rediss://h?ssl_ca_certs=/no/such.pem&socket_timeout=5", set_as_current=False
    )
    with pytest.raises(pawlock.ConfigurationError, match=r"no/such\.pem"):
        client(missing)
    app = Celery(
        "shop", broker=f"{server.url}?socket_timeout=5&health_check_interval=25", set_as_current=False
    )
    with client(app).lock("of the broker's server"):
        assert server.command("EXISTS", "pawlock:of the broker's server") == 1
    client(app).close()


def test_what_can_never_work_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAWLOCK_URL", raising=False)

    def make(**conf: object) -> None:
        app = Celery("shop", broker="memory://", set_as_current=False)
        app.conf.update(conf)
        LeaderScheduler(app)

    with pytest.raises(pawlock.ConfigurationError, match="no server"):
        make()
    with pytest.raises(pawlock.ConfigurationError, match="empty"):
        make(pawlock={"url": ""})
    with pytest.raises(pawlock.ConfigurationError, match="dictionary"):
        make(pawlock=server.url)
    with pytest.raises(pawlock.ConfigurationError, match="store"):
        make(pawlock={"url": "redis+sentinel://a,b/one"})
    with pytest.raises(pawlock.ConfigurationError, match="unknown keys: nmae"):
        make(pawlock={"url": server.url}, pawlock_beat={"nmae": "x"})


@pytest.mark.slow
def test_a_cluster_one_of_whose_nodes_is_away() -> None:
    def work(number: int) -> int:
        return number

    with ClusterGroup() as group:
        app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
        app.conf.beat_schedule = every(0.02)
        app.conf.pawlock = {
            "url": group.url.replace("redis+cluster://", f"redis+cluster://127.0.0.1:{free_port()},")
        }
        app.conf.pawlock_beat = {"scheduler": Sender}
        task = app.task(base=Unique, name="work", on_duplicate="existing", shared=False)(work)
        app.finalize()
        one = LeaderScheduler(app, max_interval=0.02)
        run(one, lambda: len(one.sent) > 3)
        one.close()
        first = task.delay(1)
        assert task.delay(1).id == first.id
        client(app).close()


# ------------------------------------------------------------------ beats that are killed


@pytest.fixture
def beats(valkey: Server, tmp_path: Path) -> Iterator[Rig]:
    valkey.command("FLUSHALL")
    with rig(tmp_path, {"BROKER": valkey.url, "HOME": str(tmp_path), "BEAT_TTL": "1"}) as found:
        yield found


def start(beats: Rig) -> subprocess.Popen[str]:
    name = "pawlock.integrations.celery:LeaderScheduler"
    return beats.start(
        "celery", "-A", "tests.integrations.celery_app", "beat", "-S", name, "-l", "INFO", "--pidfile="
    )


def sent(valkey: Server) -> list[tuple[int, int]]:
    """The number of each task that waits in the queue, oldest first, with the process that sent it."""
    messages = valkey.command("LRANGE", "celery", "0", "-1")
    assert isinstance(messages, list)
    found = []
    for message in reversed(messages):
        assert isinstance(message, bytes)
        args = json.loads(base64.b64decode(json.loads(message)["body"]))[0]
        found.append((int(args[0]), int(args[1])))
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_hundred_tasks_with_the_active_beat_killed_or_stopped_again_and_again(
    beats: Rig, valkey: Server
) -> None:
    """None is sent twice, and none is missing but those of the seconds in which nobody led."""
    rng = random.Random(7)
    running = {process.pid: process for process in (start(beats), start(beats))}
    takeovers: list[float] = []
    pauses: list[tuple[int, int]] = []
    until("the first one sends", lambda: sent(valkey))
    while len(sent(valkey)) < 200:
        count = len(sent(valkey))
        until("it goes on", lambda: len(sent(valkey)) >= count + 30)
        time.sleep(rng.random() * EVERY)
        active = sent(valkey)[-1][1]
        stopped = len(takeovers) % 3 == 2
        (running[active] if stopped else running.pop(active)).send_signal(
            signal.SIGSTOP if stopped else signal.SIGKILL
        )
        killed = time.time()
        if not stopped:
            running |= {one.pid: one for one in (start(beats),)}
        until("the other one sends", lambda: sent(valkey)[-1][1] != active)
        takeovers.append(time.time() - killed)
        pauses.append((slot(killed) - 1, slot()))
        if stopped:
            running[active].send_signal(signal.SIGCONT)
    until(
        "all stand",
        lambda: beats.log().count("standing for election") == 2 + len(takeovers) - len(takeovers) // 3,
    )
    for process in running.values():
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in running.values()] == [0, 0], beats.log()
    numbers = [number for number, _ in sent(valkey)]
    print(
        f"{len(numbers)} sent by {len({pid for _, pid in sent(valkey)})} beats, took over within", takeovers
    )
    assert len(numbers) == len(set(numbers)), "sent twice"
    assert max(takeovers) < 1 + 1 * pace(), takeovers
    missing = set(range(numbers[0], numbers[-1])) - set(numbers)
    lost = [number for number in missing if not any(first <= number <= last for first, last in pauses)]
    # A machine that is busy may give no beat a turn within a tenth of a second; that is for Celery to say.
    assert len(lost) <= (pace() - 1) * len(numbers) / 20, lost


@pytest.mark.slow
def test_a_beat_that_is_ended_has_the_other_one_go_on_at_once(beats: Rig, valkey: Server) -> None:
    beats.environ["BEAT_TTL"] = "30"
    one = start(beats)
    until("the first one sends", lambda: sent(valkey))
    start(beats)
    until("the second one stands", lambda: beats.log().count("standing for election") == 2)
    one.send_signal(signal.SIGTERM)
    assert one.wait(60) == 0, beats.log()
    until("the second one sends", lambda: sent(valkey)[-1][1] != one.pid, 10 * pace())
    numbers = [number for number, _ in sent(valkey)]
    assert len(numbers) == len(set(numbers))
