"""The live page in a real browser: find a stuck lock, see who waits, take it away, see the audit entry."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pawl
from pawl.testing.servers import Server
from tests.service.browser import PROGRAM, Browser
from tests.service.rig import Instance

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium (apt-get install chromium)")
NUMBER_OF_FOCUSED = "[...document.querySelectorAll('#rows a')].indexOf(document.activeElement)"
LOGIN = """document.getElementById('token').value = %r;
document.getElementById('login').requestSubmit(); true"""


def test_a_stuck_lock_is_found_and_taken_away(service: Instance, tmp_path: Path) -> None:
    stuck = service.acquire("order:42", ttl=300, holder="worker-3")
    for number in range(12):
        service.acquire(f"job:{number}", ttl=60 + 10 * number, holder=f"worker-{number % 4}")
    with Browser(tmp_path / "profile") as page, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.acquire, "order:42", wait=50, holder="web-1")
        page.shape("light")
        page.open(f"{service.address}/?search=order")
        page.run(LOGIN % "pawl_wrong")
        page.until("document.getElementById('refused').textContent.includes('not known')")
        page.run(LOGIN % service.tokens.secrets["admin"])
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
        secret = service.tokens.secrets["admin"]
        assert secret not in page.run("location.href + document.cookie + JSON.stringify(localStorage)")
        assert secret not in page.run("document.documentElement.outerHTML")
    released = service.ask("POST", "/v1/ns/pawl/lock/order:42/release", {"token": stuck.body["token"]})
    assert released.status == 409


def test_who_may_only_read_sees_no_button(service: Instance, tmp_path: Path) -> None:
    service.tokens.add("reader", roles=["read"])
    service.acquire("a", ttl=60)
    with Browser(tmp_path / "profile") as page:
        page.open(f"{service.address}/?kind=lock&name=a")
        page.run("new Promise((done) => setTimeout(() => done(true), 1100))")
        page.run(LOGIN % service.tokens.secrets["reader"])
        page.until("document.getElementById('facts').textContent.includes('held')")
        assert page.run("document.getElementById('force').hidden") is True


def test_with_the_keyboard_alone(service: Instance, server: Server, tmp_path: Path) -> None:
    """Search, step through the names, look at one, take it away, read what was done, and go back."""
    with pawl.connect(server.url, history=20) as client, Browser(tmp_path / "profile") as page:
        client.lock("report").acquire().release()
        stuck = client.lock("report", ttl=300).acquire()
        held = [client.lock(f"job:{number}", ttl=300).acquire() for number in range(3)]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(service.acquire, "report", wait=50, holder="web-1")
            page.shape("light")
            page.open(service.address)
            page.type(service.tokens.secrets["admin"], "document.getElementById('token').focus()")
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
            page.until("document.getElementById('history').textContent.includes('released after')")
            page.until("document.getElementById('one-line').getAttribute('points').split(' ').length > 1")
            assert page.run("document.getElementById('one-peak').textContent") == "now 1, at most 1"
            assert page.run("document.getElementById('one-audit').innerText") == "nothing"
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


def _keep(page: Browser, scheme: str) -> None:
    """Take a picture; `PAWL_SHOTS=docs/images` keeps it for the documentation."""
    picture = page.shot()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000
    if folder := os.environ.get("PAWL_SHOTS"):
        (Path(folder) / f"page-{scheme}.png").write_bytes(picture)
