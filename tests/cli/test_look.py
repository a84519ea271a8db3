"""`pawlock ls` and `show`, as the person on call uses them."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, Pawlock, environment, eventually
from tests.cli.screen import Screen
from tests.support.command import call
from tests.support.pace import pace
from tests.support.servers import Server


@pytest.fixture
def client(pawlock: Pawlock) -> library.Client:
    return pawlock.client


def listed(pawlock: Pawlock, *arguments: str) -> list[dict[str, object]]:
    code, out, err = pawlock.call("ls", "--json", *arguments)
    assert (code, err) == (0, "")
    found: list[dict[str, object]] = json.loads(out)
    return found


def behind(pawlock: Pawlock, number: int) -> list[dict[str, object]]:
    """What is held while so many wait for it."""
    return [one for one in listed(pawlock) if int(str(one["waiting"])) >= number]


def test_ls_lists_what_any_client_holds(pawlock: Pawlock, client: library.Client) -> None:
    lease = client.lock("order:1", ttl=20).acquire()
    permit = client.semaphore("pool", permits=3).acquire()
    lead = client.election("boss", identity="me").campaign()
    holder = pawlock.hold("order:2")
    found = {str(one["name"]): one for one in listed(pawlock)}
    assert set(found) == {"order:1", "order:2", "pool", "boss"}
    assert [one["kind"] for _, one in sorted(found.items())] == ["election", "lock", "lock", "semaphore"]
    one = found["order:1"]
    assert (one["pid"], one["fence"], one["queue_length"]) == (os.getpid(), lease.fence, 0)
    assert isinstance(one["age"], float)
    assert isinstance(one["ttl_left"], float)
    assert 0 <= one["age"] < 15
    assert 0 < one["ttl_left"] <= 20
    assert str(found["order:2"]["holder"]).split(":")[1].startswith(f"{holder.pid}/")
    assert found["boss"]["holder"] == "me"
    for held in (lease, permit, lead):
        held.release()


def test_ls_sees_what_is_held_for_moments_and_who_waits_for_it(pawlock: Pawlock) -> None:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with contextlib.suppress(library.AcquireTimeout), lock.acquire(timeout=1):
                over.wait(0.2)

    with library.connect(pawlock.server.url) as client:
        lock = client.fair_lock("busy", ttl=5)
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: pawlock.waiting("busy") >= 15)
            for _ in range(5):
                (one,) = listed(pawlock)
                assert (one["name"], one["held"]) == ("busy", True)
                assert isinstance(one["queue_length"], int)
                assert one["queue_length"] >= 10
        finally:
            over.set()
            for thread in threads:
                thread.join()


def test_who_waits_inside_a_client_is_counted_too(pawlock: Pawlock) -> None:
    """Twenty threads of one client, of which the server knows one at most."""
    over, found = threading.Event(), list[dict[str, object]]()

    def work() -> None:
        while not over.is_set():
            with lock:
                over.wait(0.2)

    def seen() -> bool:
        # Nothing is listed before the first of them holds it.
        found[:] = behind(pawlock, 10)
        return bool(found)

    with library.connect(pawlock.server.url) as client:
        lock = client.lock("busy")
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        try:
            eventually(seen)
            one = found[0]
            assert (one["name"], one["held"]) == ("busy", True)
            assert one["longest_wait"] >= 1  # type: ignore[operator]
            assert pawlock.client.inspect("busy").waiting >= 10
            shown = pawlock.call("show", "busy")[1]
            assert re.search(r"waiters   \d\d, for up to \d", shown)
            assert "inside these clients" in shown
        finally:
            over.set()
            for thread in threads:
                thread.join()
        eventually(lambda: not behind(pawlock, 1))


@pytest.mark.slow
def test_ls_beside_a_million_other_keys_tells_how_far_it_is(
    own_server: Server, screens: list[Screen]
) -> None:
    script = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'other:' .. i, i) end"
    for start in range(0, 1_000_000, 10_000):
        own_server.command("EVAL", script, "0", str(start), str(start + 9_999))
    with library.connect(own_server.url) as client, client.lock("needle"):
        screen = Screen([*PAWLOCK, "ls"], environment(PAWLOCK_URL=own_server.url, TERM="dumb"))
        screens.append(screen)
        screen.until(r"\d+,000 of 1,00\d,\d{3} keys", 30)
        screen.until("needle", 60)
        assert screen.end() == 0


def test_ls_is_a_table_that_can_be_filtered_and_sorted(pawlock: Pawlock, client: library.Client) -> None:
    leases = []
    for name in ("b", "a", "other"):
        leases.append(client.lock(name).acquire())
        time.sleep(0.15)  # ages are told in tenths of a second
    code, out, _ = pawlock.call("ls")
    head, *rows = out.splitlines()
    assert code == 0
    assert head.split() == ["NAME", "KIND", "HOLDER", "AGE", "TTL", "LEFT", "WAITERS", "WAIT", "FENCE"]
    assert [row.split()[0] for row in rows] == ["a", "b", "other"]
    assert f"{os.getpid()}/MainThread" in rows[0]
    assert "\033" not in out
    assert [one["name"] for one in listed(pawlock, "--filter", "oth")] == ["other"]
    holder = rows[0].split()[2]
    assert holder == listed(pawlock)[0]["holder"]
    # Whatever part of a printed cell is pasted.
    for part in (
        holder,
        holder.partition(":")[2],
        f"{os.getpid()}/MainThread",
        "MainThread",
        holder[:-8] + "*",
    ):
        assert len(listed(pawlock, "--filter", part)) == 3
    assert [one["name"] for one in listed(pawlock, "--filter", "?")] == ["a", "b"]
    assert len(listed(pawlock, "--filter", f":{os.getpid()}")) == 3
    assert [one["name"] for one in listed(pawlock, "--sort", "age")] == ["b", "a", "other"]
    for lease in leases:
        lease.release()


def test_of_several_holders_a_list_names_one_and_counts_the_others(
    pawlock: Pawlock, client: library.Client
) -> None:
    permits = [client.semaphore("pool", permits=5).acquire() for _ in range(3)]
    readers = [client.rwlock("config").read.acquire() for _ in range(2)]
    cells = {line.split()[0]: re.split("  +", line)[2] for line in pawlock.call("ls")[1].splitlines()[1:]}
    assert re.fullmatch(r"\S+/MainThread \+2", cells["pool"])
    assert [one["name"] for one in listed(pawlock, "--filter", cells["pool"])] == ["pool"]
    assert not cells["config"].endswith("+1"), "one thread that reads twice is one holder"
    for lease in (*permits, *readers):
        lease.release()


def test_a_name_cannot_speak_to_the_terminal(pawlock: Pawlock, client: library.Client) -> None:
    name = "evil\033[2J\nname"
    with client.lock(name):
        for verb in (("ls",), ("show", name)):
            code, out, _ = pawlock.call(*verb)
            assert code == 0
            assert "\033" not in out
            assert "evil\\x1b[2J\\nname" in out


def test_nothing_is_held(pawlock: Pawlock) -> None:
    assert listed(pawlock) == []
    code, out, err = pawlock.call("ls")
    assert (code, len(out.splitlines())) == (0, 1)
    what = "looked at 0 keys of the server at \\d\\d:\\d\\d:\\d\\d; --all-namespaces lists every namespace\n"
    place = f"no lock is held in namespace 'pawlock' ({pawlock.server.url}): "
    assert re.fullmatch(re.escape(f"pawlock: {place}") + what, err)
    pawlock.server.command("SET", "other", "x")
    assert "looked at all 1 keys of the server" in pawlock.call("ls")[2]


def test_a_filter_that_fits_nothing_says_so(pawlock: Pawlock, client: library.Client) -> None:
    with client.lock("a"):
        code, out, err = pawlock.call("ls", "--filter", "zz")
    assert (code, len(out.splitlines())) == (0, 1)
    assert "no name or holder matches 'zz'; 1 are held in namespace 'pawlock'" in err


def test_ls_of_every_namespace(pawlock: Pawlock) -> None:
    assert pawlock.call("ls", "--all-namespaces")[2].startswith(
        "pawlock: no lock is held in any namespace of redis://"
    )
    spaces = ["", "a b%", "é:*", "pawlock", "shop"]
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(library.connect(pawlock.server.url, namespace=space)) for space in spaces
        ]
        for client in clients:
            stack.enter_context(client.lock("job"))
        found = listed(pawlock, "--all-namespaces")
        assert [(one["namespace"], one["name"]) for one in found] == [
            (space, "job") for space in sorted(spaces)
        ]
        out = pawlock.call("ls", "--all-namespaces")[1]
        assert out.startswith("NAMESPACE ")
        assert pawlock.call("ls", "--all-namespaces", "--namespace", "x")[0] == 64
    assert pawlock.call("ls", "--all-namespaces", "--url", "redlock://a,b,c")[0] == 69


def test_one_holder_is_spelled_alike_everywhere(pawlock: Pawlock) -> None:
    """A thread as Python names it by default, with blanks and brackets: what one command prints, another finds."""
    with library.connect(pawlock.server.url) as client, contextlib.ExitStack() as stack:
        ready, over = threading.Event(), threading.Event()

        def hold() -> None:
            # An operator takes it at the end, which is not what is tested.
            with contextlib.suppress(library.LeaseLost), client.lock("job"):
                ready.set()
                over.wait(300)

        thread = threading.Thread(target=hold)
        stack.callback(over.set)
        thread.start()
        assert ready.wait(10)
        holder = str(listed(pawlock)[0]["holder"])
        assert re.fullmatch(r"[\w.-]+:\d+/Thread-\d+__hold_", holder)
        for verb in (["ls"], ["top", "-n", "1"], ["show", "job"]):
            _, out, err = pawlock.call(*verb)
            assert holder in out + err, verb
        shown = json.loads(pawlock.call("show", "--json", "job")[1])
        assert shown["locks"][0]["holder"] == holder
        pawlock.call("force-release", "--yes", "--reason", "r", "job")
        assert json.loads(pawlock.call("show", "--json", "job")[1])["audit"][0]["holder"] == holder
        over.set()
        thread.join()


def test_the_server_may_be_named_before_the_command(pawlock: Pawlock) -> None:
    """Of `run`: test_the_namespace_is_taken."""
    env = environment(PAWLOCK_URL="redis://127.0.0.1:1", PAWLOCK_TIMEOUT="0")
    for words, wanted in ((["ls"], 0), (["show", "job"], 0), (["doctor"], 1)):
        code, _, err = call("--url", pawlock.server.url, "--namespace", "other", *words, env=env)
        assert code == wanted, (words, err)


def test_what_a_command_is_given_goes_before_what_stands_before_it(pawlock: Pawlock) -> None:
    assert call("--url", "gopher://x", "ls", "--url", pawlock.server.url)[0] == 0
    assert call("--url", "gopher://x", "ls")[0] == 64


@pytest.mark.slow
def test_messages_are_in_words_of_the_command(pawlock: Pawlock) -> None:
    code, _, err = call("ls", env=environment(PAWLOCK_URL="redis://127.0.0.1:1"))
    assert (code, err.count("\n")) == (69, 1)
    assert "unavailable_after" not in err
    assert "pawlock doctor" in err


@pytest.mark.parametrize("pipe", ["| head -1", pytest.param("| true", marks=pytest.mark.slow)])
def test_ls_ends_quietly_when_its_reader_has_enough(
    pawlock: Pawlock, client: library.Client, pipe: str
) -> None:
    leases = [client.lock(f"{'x' * 150}{number:04}").acquire() for number in range(400)]
    eventually(lambda: len(client.locks()) == 400)
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(PAWLOCK)} ls {pipe}; echo ${{PIPESTATUS[0]}}"],
        env=environment(PAWLOCK_URL=pawlock.server.url),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "141"
    for lease in leases:
        lease.release()


@pytest.mark.parametrize(
    ("words", "buffered"),
    [
        (["ls"], ""),
        (["--help"], ""),
        (["run", "--help"], ""),
        (["--version"], ""),
        *(
            pytest.param(words, "1", marks=pytest.mark.slow)
            for words in (["ls"], ["--help"], ["run", "--help"], ["--version"])
        ),
    ],
)
def test_a_full_disk_is_told(pawlock: Pawlock, words: list[str], buffered: str) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        done = subprocess.run(
            [*PAWLOCK, *words],
            env=environment(PAWLOCK_URL=pawlock.server.url, PYTHONUNBUFFERED=buffered),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 74
    assert done.stderr.splitlines()[0].startswith("pawlock: ")


def test_show_tells_who_waits_in_order(pawlock: Pawlock, client: library.Client) -> None:
    def wait() -> None:
        with library.connect(pawlock.server.url) as other, other.lock("job").acquire(timeout=60):
            pass

    waiters = [threading.Thread(target=wait, name=f"waiter-{number}") for number in range(3)]
    with client.lock("job") as lease:
        for number, waiter in enumerate(waiters):
            waiter.start()
            eventually(lambda n=number: pawlock.waiting("job") == n + 1)  # type: ignore[misc]
        found = json.loads(pawlock.call("show", "--json", "job")[1])["locks"]
        assert [(one["kind"], one["held"], one["queue_length"]) for one in found] == [("lock", True, 3)]
        names = [one["holder"].rpartition("/")[2] for one in found[0]["waiters"]]
        assert names == ["waiter-0", "waiter-1", "waiter-2"]
        text = pawlock.call("show", "--waiters", "2", "job")[1]
        assert f"held by   {found[0]['holder']}" in text
        assert str(lease.fence) in text
        assert "and 1 more" in text
        assert re.search(rf"since     \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d {time.strftime('%Z')}, for", text)
    for waiter in waiters:
        waiter.join()


def test_show_finds_what_a_name_is_used_for(pawlock: Pawlock, client: library.Client) -> None:
    with client.semaphore("n", permits=2), client.election("n", identity="me").campaign():
        found = json.loads(pawlock.call("show", "--json", "n")[1])["locks"]
        assert [one["kind"] for one in found] == ["semaphore", "election"]
        text = pawlock.call("show", "n")[1]
        assert "n (semaphore)" in text
        assert "n (election)\n  held by   me\n" in text
    code, out, _ = pawlock.call("show", "n")
    assert (code, out.splitlines()[0], "nobody" in out) == (0, "n (lock)", True)


def test_a_name_is_taken_as_it_stands(pawlock: Pawlock, client: library.Client) -> None:
    with client.lock("a{{b}}"):
        assert json.loads(pawlock.call("show", "--json", "a{b}")[1])["locks"][0]["held"]
        assert pawlock.run("run", "-nq", "a{b}", "--", "true") == (75, "", "")


def test_the_server_is_killed_in_the_middle(pawlock_alone: Pawlock) -> None:
    threading.Timer(0.5, pawlock_alone.server.kill).start()
    code, out, err = pawlock_alone.call("top", "--json", "--interval", "0.05")
    assert len(out.splitlines()) > 2
    assert (code, err.count("\n")) == (69, 1)
    assert "[REDIS_CONNECTION_ERROR]" in err


@pytest.mark.slow
def test_ctrl_c_while_the_server_does_not_answer(pawlock_alone: Pawlock) -> None:
    command = pawlock_alone.start("top", "--json", "--interval", "0.05")
    command.line()
    pawlock_alone.server.kill()
    time.sleep(0.5)
    began = time.monotonic()
    command.send(signal.SIGINT)
    assert command.end()[0] == -signal.SIGINT
    assert time.monotonic() - began < pace() * 4
