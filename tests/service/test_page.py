"""The live page in a real browser: find a stuck lock, see who waits, take it away, see the audit entry."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pawlock
from tests.service.browser import PROGRAM, Browser
from tests.service.rig import Instance, Tokens
from tests.support.servers import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium (apt-get install chromium)"),
]
NUMBER_OF_FOCUSED = "[...document.querySelectorAll('#rows a')].indexOf(document.activeElement)"
LOGIN = """document.getElementById('token').value = %r;
document.getElementById('login').requestSubmit(); true"""


def test_a_stuck_lock_is_found_and_taken_away(instance: Instance, tmp_path: Path) -> None:
    stuck = instance.acquire("order:42", ttl=300, holder="worker-3")
    for number in range(12):
        instance.acquire(f"job:{number}", ttl=60 + 10 * number, holder=f"worker-{number % 4}")
    with Browser(tmp_path / "profile") as page, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(instance.acquire, "order:42", wait=50, holder="web-1")
        page.shape("light")
        page.open(f"{instance.address}/?search=order")
        page.run(LOGIN % "pawlock_wrong")
        page.until("document.getElementById('refused').textContent.includes('unknown')")
        page.run(LOGIN % instance.tokens.secrets["admin"])
        page.until("document.querySelectorAll('#rows tr').length === 1")
        assert "order:42" in page.run("document.getElementById('rows').textContent")
        page.run("""const box = document.getElementById('search'); box.value = '';
                    box.dispatchEvent(new Event('input')); true""")
        page.until("document.querySelectorAll('#rows tr').length === 13")
        assert "search" not in page.run("location.search")
        _keep(page, "light")
        page.shape("dark")
        _keep(page, "dark")
        page.shape("light", 360)
        assert page.run("document.documentElement.scrollWidth <= innerWidth + 1")
        page.shape("light")
        page.run(
            """[...document.querySelectorAll('#rows a')].find((a) => a.textContent === 'order:42').click(); true"""
        )
        page.until("document.getElementById('queue').textContent.includes('web-1')")
        assert "name=order%3A42" in page.run("location.search")
        page.until("!document.getElementById('force').hidden")
        page.run(
            "document.getElementById('force').click(); document.getElementById('reason').value = 'stuck'; true"
        )
        page.run("document.getElementById('sure-form').requestSubmit(); true")
        page.until("!document.getElementById('sure').open")
        assert waiting.result(10).status == 200
        page.until("document.getElementById('one-audit').innerText.includes('stuck')")
        page.until("document.getElementById('facts').textContent.includes('web-1')")
        secret = instance.tokens.secrets["admin"]
        assert secret not in page.run("location.href + document.cookie + JSON.stringify(localStorage)")
        assert secret not in page.run("document.documentElement.outerHTML")
    released = instance.ask("POST", "/v1/ns/pawlock/lock/order:42/release", {"token": stuck.body["token"]})
    assert released.status == 409


def test_the_dialog_names_a_lock_and_takes_that_one_away(instance: Instance, tmp_path: Path) -> None:
    for name in ("evil%E2%80%AEgnp.exe", "other"):
        assert instance.acquire(name, ttl=300).status == 200
    with Browser(tmp_path / "profile") as page:
        page.open(instance.address)
        page.run(LOGIN % instance.tokens.secrets["admin"])
        page.until("document.querySelectorAll('#rows tr').length === 2")
        page.run("setView({ kind: 'lock', name: 'evil\\u202egnp.exe' }, true); true")
        page.until("!document.getElementById('force').hidden")
        page.run(
            "document.getElementById('force').click(); document.getElementById('reason').value = 'w'; true"
        )
        asked = page.run("document.getElementById('sure-text').textContent")
        assert asked.startswith("evil⟨U+202E⟩gnp.exe in pawlock: "), asked
        # As the button of the browser for the page before does, which no dialog stops.
        page.run("setView({ kind: 'lock', name: 'other' }, true); true")
        page.run("document.getElementById('sure-form').requestSubmit(); true")
        page.until("!document.getElementById('sure').open")
    held = {one["name"] for one in instance.ask("GET", "/v1/ns/pawlock/locks").body["locks"]}
    assert held == {"other"}


def test_who_may_only_read_sees_no_button(instance: Instance, tmp_path: Path) -> None:
    instance.tokens.add("reader", roles=["read"])
    instance.acquire("a", ttl=60)
    with Browser(tmp_path / "profile") as page:
        page.open(f"{instance.address}/?kind=lock&name=a")
        page.run("new Promise((done) => setTimeout(() => done(true), 1100))")
        page.run(LOGIN % instance.tokens.secrets["reader"])
        page.until("document.getElementById('facts').textContent.includes('held')")
        assert page.run("document.getElementById('force').hidden") is True


def test_with_the_keyboard_alone(instance: Instance, server: Server, tmp_path: Path) -> None:
    """Search, step through the names, look at one, take it away, read what was done, and go back."""
    with pawlock.connect(server.url) as client, Browser(tmp_path / "profile") as page:
        client.lock("report").acquire().release()
        stuck = client.lock("report", ttl=300).acquire()
        held = [client.lock(f"job:{number}", ttl=300).acquire() for number in range(3)]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(instance.acquire, "report", wait=50, holder="web-1")
            page.shape("light")
            page.open(instance.address)
            page.type(instance.tokens.secrets["admin"], "document.getElementById('token').focus()")
            page.press("Enter")
            page.until("document.querySelectorAll('#rows tr').length === 4")
            page.press("j")
            page.press("ArrowDown")
            assert page.run(NUMBER_OF_FOCUSED) == 1
            page.press("k")
            assert page.run(NUMBER_OF_FOCUSED) == 0
            # Drawn anew every second, and yet the focus stays.
            page.run("new Promise((done) => setTimeout(() => done(true), 1200))")
            assert page.run(NUMBER_OF_FOCUSED) == 0
            page.press("/")
            page.type("rep")
            page.until("document.querySelectorAll('#rows tr').length === 1")
            page.press("ArrowDown")
            page.press("Enter")
            page.until("document.getElementById('queue').textContent.includes('web-1')")
            page.until("document.getElementById('one-line').getAttribute('points').split(' ').length > 1")
            assert page.run("document.getElementById('one-peak').textContent") == "current 1, peak 1"
            axes = page.run("document.querySelector('.chart').innerText").split("\n")
            assert [one for one in axes if one] == ["2", "1", "0", "2 min ago", "1 min ago", "now"]
            assert page.run("document.getElementById('one-audit').innerText") == "no entries"
            for scheme in ("light", "dark"):
                page.shape(scheme)
                _keep(page, f"lock-{scheme}")
            page.press("?")
            assert page.run("document.getElementById('keys').open") is True
            page.press("Enter")
            assert page.run("document.getElementById('keys').open") is False
            page.press("f")
            page.type("hangs in the export")
            page.press("Enter")
            assert waiting.result(10).status == 200
            page.until("document.getElementById('one-audit').innerText.includes('hangs in the export')")
            page.until("document.getElementById('facts').textContent.includes('web-1')")
            page.press("Escape")
            page.until("!document.getElementById('all').hidden")
            assert "name=" not in page.run("location.search")
        stuck.lost.wait(5)
        for lease in held:
            lease.release()


ROWS = "document.querySelectorAll('#rows tr').length"
SNAPSHOT = """(() => { stream.abort();
const now = Date.now() / 1000;
const one = (name, age, waiters) => ({name, kind: 'lock', held: true, holder: 'vm:1/worker', foreign: false,
  ttl_left: 20, fence: 1795864048562340, count: 1, queue_length: waiters, waiting: waiters,
  longest_wait: waiters && age, waiters: [], host: 'vm', pid: 1, since: now - age,
  used: null, limit: null, holders: [], seen_since: now - age});
const locks = [one('daily-report', 5, 0), one('import', 1200, 3), one('evil\u202egnp.exe', 4, 0)];
audit = [{at: now, name: 'import', action: 'force_release', outcome: 'released', holder: '', text: 'why'}];
const recent = [{at: now - 4, what: 'acquired', kind: 'lock', name: 'daily-report', holder: 'vm:1/worker',
  fence: 1795864048562340}];
take('event: snapshot\\ndata: ' + JSON.stringify({locks, recent, now})); return true; })()"""


def test_the_oldest_comes_first_and_names_are_read_by_themselves(instance: Instance, tmp_path: Path) -> None:
    other = instance.ask("POST", "/v1/ns/billing/lock/invoice/acquire", {"ttl": 60})
    assert other.status == 200
    with Browser(tmp_path / "profile") as page:
        page.shape("light")
        page.open(instance.address)
        page.run(LOGIN % instance.tokens.secrets["admin"])
        page.until("document.getElementById('state').textContent.startsWith('live')")
        page.until("document.getElementById('audit').textContent === 'no entries'")
        page.run(SNAPSHOT)
        page.until("document.querySelectorAll('#rows tr').length === 3")
        first = page.run("document.querySelector('#rows tr').textContent")
        assert "import" in first
        assert "20 min" in first
        # What is stuck is known at the first look, and the longest wait is the largest text.
        assert page.run("document.querySelector('#rows tr').className").split() == ["long", "stuck"]
        assert (
            page.run("document.getElementById('worst').innerText").split("\n")[0].startswith("Longest wait")
        )
        assert page.run("document.getElementById('worst-time').textContent") == "20 min 0 s"
        assert page.run("document.getElementById('worst-name').textContent") == "import"
        fence = page.run(
            "[...document.querySelectorAll('.short')].map((one) => [one.textContent, one.title])[0]"
        )
        assert fence == ["…562340", "fencing token 1795864048562340"]
        page.run("const few = locks; locks = Array(301).fill(few[0]); draw(); true")
        assert page.run(ROWS) == 300
        assert page.run("document.getElementById('count').innerText").endswith("; the first 300 are shown")
        page.run("locks = few; draw(); true")
        assert page.run(ROWS) == 3
        assert "1795864048562340" not in page.run("document.getElementById('recent').innerText")
        assert page.run("getComputedStyle(document.querySelector('#rows bdi')).unicodeBidi") == "isolate"
        text = page.run("document.body.innerText")
        assert "\u202e" not in text
        assert "evil⟨U+202E⟩gnp.exe" in text
        assert "?" not in page.run("document.getElementById('audit').innerText")
        assert "AM" not in text
        assert re.search(r"\d\d:\d\d:\d\d \S+ +daily-report: acquired", text)
        for scheme in ("light", "dark"):
            page.shape(scheme)
            _keep(page, f"locks-{scheme}")
        page.run(
            "const to = document.getElementById('space'); to.value = 'billing'; "
            "to.dispatchEvent(new Event('change')); true"
        )
        page.until("document.getElementById('rows').textContent.includes('invoice')")
        page.run("document.querySelector('#rows a').click(); true")
        page.until("document.getElementById('facts').textContent.includes('Since')")
        assert page.run("document.getElementById('nobody').hidden") is False
        assert page.run("document.getElementById('queue').hidden") is True


def test_all_holders_are_shown_and_no_word_is_broken(instance: Instance, tmp_path: Path) -> None:
    for holder in ("a", "b", "c", "a"):
        instance.acquire("pool", "semaphore", permits=5, ttl=60, holder=f"worker-{holder}")
    instance.acquire("tenant/42/" + "long-name-" * 9, ttl=60)
    with Browser(tmp_path / "profile") as page:
        page.shape("light", 1366)
        page.open(instance.address)
        page.run(LOGIN % instance.tokens.secrets["admin"])
        page.until("document.getElementById('rows').innerText.includes('and 3 more')")
        heads = page.run("[...document.querySelectorAll('th')].map((head) => head.clientHeight)")
        assert max(heads) < 40, "one line each"
        page.shape("dark", 390)
        # One line of text for each fact, but for the long name.
        cells = page.run(
            "[...document.querySelectorAll('#rows td:not([data-what=Name])')].map((one) => one.clientHeight)"
        )
        assert max(cells) < 60
        assert page.run("document.documentElement.scrollWidth <= innerWidth + 1")
        page.run(
            "[...document.querySelectorAll('#rows a')].find((a) => a.textContent === 'pool').click(); true"
        )
        page.until("document.getElementById('facts').textContent.includes('4 of 5 in use')")
        facts = page.run("document.getElementById('facts').innerText")
        assert all(f"worker-{holder}" in facts for holder in "abc")
        page.run("document.getElementById('force').click(); true")
        whose = page.run("[...document.getElementById('whom').options].map((one) => one.textContent)")
        assert whose[0] == "all 4"
        said = [
            f"worker-{holder}:http/admin{times}"
            for holder, times in (("a", " (2 times)"), ("b", ""), ("c", ""))
        ]
        assert sorted(whose[1:]) == said
        assert page.run("document.activeElement.id") == "reason"


def test_nothing_is_drawn_anew_under_a_finger_or_a_selection(instance: Instance, tmp_path: Path) -> None:
    for name in ("a", "b"):
        instance.acquire(name, ttl=60, holder="worker-1")
    state = "document.getElementById('state').textContent"
    with Browser(tmp_path / "profile") as page:
        page.open(instance.address)
        page.run(LOGIN % instance.tokens.secrets["admin"])
        page.until("document.querySelectorAll('#rows tr').length === 2")
        page.run("getSelection().selectAllChildren(document.querySelector('#rows [data-what=Holder]')); true")
        page.until(f"{state}.endsWith(': text is selected')")
        page.run("new Promise((done) => setTimeout(() => done(true), 2200))")
        assert page.run("getSelection().toString()").startswith("worker-1")
        page.run("getSelection().removeAllRanges(); true")
        page.until(f"{state}.startsWith('live')")
        # A click that takes longer than there is between two pictures.
        x, y = page.run(
            "(({x, y}) => [x + 3, y + 3])(document.querySelector('#rows a').getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            page.run("new Promise((done) => setTimeout(() => done(true), 1500))")
        assert "name=a" in page.run("location.search")
        page.until("document.getElementById('facts').innerText.includes('worker-1')")
        # Nothing came for as long as three pictures take.
        page.run("stream.abort(); gap = 1; heardAt = Date.now() - 6500; drawState(); true")
        assert "sends nothing any more" in page.run("document.getElementById('outage').innerText")


WIDTHS = "[...document.querySelectorAll('th')].map((head) => Math.round(head.getBoundingClientRect().width))"


def test_an_outage_is_red_and_over_with_the_next_picture(tokens: Tokens, tmp_path: Path) -> None:
    with Server("valkey") as server, Browser(tmp_path / "profile") as page:
        instance = Instance(server.url, tokens)
        try:
            assert instance.acquire("job", ttl=60).status == 200
            page.shape("light")
            page.open(instance.address)
            assert "gives you one" in page.run("document.getElementById('login').innerText")
            page.run(LOGIN % tokens.secrets["admin"])
            page.until("document.querySelectorAll('#rows tr').length === 1")
            before = page.run(WIDTHS)
            assert page.run("document.getElementById('outage').hidden") is True
            server.kill()
            page.until("!document.getElementById('outage').hidden")
            said = page.until("document.getElementById('outage').innerText.includes('old, of') && "
                              "document.getElementById('outage').innerText")  # fmt: skip
            assert "The lock server did not respond" in said
            assert str(server.port) not in said
            assert page.run("document.getElementById('state').textContent") == "not live"
            assert float(page.run("getComputedStyle(document.querySelector('table')).opacity")) < 0.7
            assert page.run("document.querySelectorAll('#rows tr').length") == 1
            page.run("document.querySelector('#rows a').click(); true")
            page.until("document.getElementById('one-problem').textContent.includes('did not respond')")
            facts = page.until("document.getElementById('facts').innerText")
            assert "held" in facts, "what the last picture has"
            page.run("document.getElementById('back').click(); true")
            server.restart(keep_data=False)
            page.until("document.getElementById('outage').hidden")
            page.until("document.getElementById('state').textContent.startsWith('live')")
            assert page.run("document.body.className") == ""
            page.until("document.querySelectorAll('#rows tr').length === 0")
            assert instance.acquire("a-much-longer-name-than-before" * 3, ttl=3000).status == 200
            page.until("document.querySelectorAll('#rows tr').length === 1")
            assert page.run(WIDTHS) == before, "columns stand still"
            keys = "[...document.querySelectorAll('.key')].some((one) => one.getClientRects().length > 0)"
            assert page.run(keys) is True
            page.shape("light", 390)
            assert page.run(keys) is False, "a phone has no keys"
        finally:
            instance.end()


def test_every_kind_is_looked_at_and_taken_away(instance: Instance, server: Server, tmp_path: Path) -> None:
    with pawlock.connect(server.url) as client, Browser(tmp_path / "profile") as page:
        taken = {
            "semaphore": client.semaphore("job", permits=2).acquire(),
            "rwlock": client.rwlock("job").read.acquire(),
            "election": client.election("job").campaign(),
            "once": client.once("job").begin(),
        }
        page.open(instance.address)
        page.run(LOGIN % instance.tokens.secrets["admin"])
        page.until(f"document.querySelectorAll('#rows tr').length === {len(taken)}")
        for left, kind in enumerate(reversed(taken)):
            # What was shown of another kind goes at once, and so does its button.
            shown = (
                f"setView({{ kind: '{kind}', name: 'job' }}, true); document.getElementById('force').hidden"
            )
            assert page.run(shown) is True
            page.until(f"document.getElementById('facts').innerText.includes('{kind}')")
            page.until("!document.getElementById('force').hidden")
            page.run(
                "document.getElementById('reason').value = 'x'; document.getElementById('force').click(); true"
            )
            page.run("document.getElementById('sure-form').requestSubmit(); true")
            page.until("!document.getElementById('sure').open")
            assert len(client.locks()) == len(taken) - 1 - left, kind


def _keep(page: Browser, scheme: str) -> None:
    """Take a picture; `PAWLOCK_SHOTS=docs/images` keeps it for the documentation."""
    picture = page.shot()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    if folder := os.environ.get("PAWLOCK_SHOTS"):
        (Path(folder) / f"page-{scheme}.png").write_bytes(picture)
