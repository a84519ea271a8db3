"""The built documentation: strict, all links lead somewhere, search finds what people type, code fits the column."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urldefrag, urljoin

import pytest

from tests.service.browser import PROGRAM, Browser

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="no mkdocs (make env-docs)"),
]
in_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium (apt-get install chromium)")

SEARCHED = {
    "fencing token": "how-to/fence-your-writes/",
    "alembic": "integrations/",
    "django": "integrations/",
    "fastapi": "integrations/",
    "lock_class": "how-to/migrate/redis-py/",
    "split brain": "",
    "backoff": "",
    "connection pool": "",
    "NX PX": "",
    "still held after": "how-to/troubleshooting/",
    "GC pause": "",
    "LOCK_TIMEOUT": "how-to/troubleshooting/",
}
"""What people type, and where the first result must be ("": anywhere)."""

ASKED = {
    "how long ttl": "concepts/leases/",
    "is it safe": "concepts/limits/",
    "performance": "concepts/how-fast/",
    "what if redis is down": "how-to/server-down/",
    "redis sentinel": "how-to/failover/",
    "redis cluster": "how-to/failover/",
    "is redlock safe": "concepts/redlock/",
    "celery once": "integrations/celery/",
    "celery beat": "integrations/celery/",
    "idempotency key": "integrations/asgi/",
    "dramatiq": "integrations/task-queues/",
    "cronjob": "integrations/",
    "django transaction": "integrations/django/",
    "who holds the lock": "how-to/troubleshooting/",
    "force release": "how-to/look-at-locks/",
    "prometheus": "how-to/metrics/",
    "alert": "how-to/metrics/",
    "logging": "how-to/metrics/",
    "rest api": "reference/http/",
    "deploy kubernetes": "how-to/serve/",
    "node": "how-to/migrate/other-libraries/",
    "redisson": "how-to/migrate/other-libraries/",
    "LockWithRetry": "how-to/migrate/other-libraries/",
    "advisory lock": "how-to/migrate/other-libraries/",
    "django-redis": "how-to/migrate/redis-py/",
    "windows": "reference/platforms/",
    "python 3.13": "reference/platforms/",
    "environment variables": "reference/options/",
    "default timeout": "reference/options/",
    "wire protocol": "reference/wire/",
    "fencing postgres": "how-to/fence-your-writes/",
    "which lock": "how-to/choose/",
    "mutex": "concepts/mutex/",
    "lock timeout": "concepts/mutex/",
    "lock lost": "concepts/leases/",
    "reentrant": "concepts/reentrancy/",
    "cron job": "how-to/run-a-command/",
    "leader election": "concepts/election/",
    "limit concurrency": "concepts/semaphore/",
    "setnx": "concepts/naive-lock/",
    "gunicorn fork": "concepts/processes/",
    "sigterm": "concepts/processes/",
    "pytest fixture": "how-to/test-your-code/",
    "tls certificate": "how-to/connect/",
    "lost reply": "concepts/outcomes/",
    "deadlock": "concepts/deadlocks/",
}
"""Questions in the words of people who do not know the pages, and what must be among the first two results."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("website") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", built],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return built


def pages(site: Path) -> list[Path]:
    """Every page but those of old addresses, which only lead on."""
    stub = '<meta http-equiv="refresh"'
    return [page for page in sorted(site.rglob("index.html")) if stub not in page.read_text("utf-8")]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class _Links(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag in ("a", "img", "link", "script"):
                self.links.append(value)


def test_every_link_leads_to_a_page_and_an_anchor_that_are_there(site: Path) -> None:
    pages = {
        page.relative_to(site).as_posix(): _Links(page.read_text("utf-8")) for page in site.rglob("*.html")
    }
    broken: list[str] = []
    for name, page in pages.items():
        if name == "404.html":
            continue
        for link in page.links:
            target, anchor = urldefrag(urljoin(f"x:///{name}".replace("x://", "http://h"), link))
            if not target.startswith("http://h/"):
                continue
            path = unquote(target.removeprefix("http://h/").partition("?")[0])
            path = path + "index.html" if path.endswith("/") or not path else path
            if path in pages:
                if unquote(anchor) not in pages[path].anchors and not anchor.startswith("__"):
                    broken.append(f"{name}: {link}: no such anchor")
            elif not (site / path).is_file():
                broken.append(f"{name}: {link}: no such file")
    assert broken == []


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text("utf-8")
        )
        foreign = [one for one in loaded if not one.startswith("https://pawlock.readthedocs.io/")]
        assert foreign == [], page


def test_search_knows_every_term(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    text = "\n".join(f"{doc['title']} {doc['text']}" for doc in index["docs"]).lower()
    assert [term for term in SEARCHED if term.lower() not in text] == []


@in_browser
def test_search_leads_to_the_page(address: str, tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    first_two = """[...document.querySelectorAll('.md-search-result__item')].slice(0, 2)
        .map((one) => one.querySelector('a').href)"""
    with Browser(tmp_path / "chromium") as page:
        page.shape("light", 1366)
        for term in SEARCHED | ASKED:
            page.open(f"{address}?q={quote(term)}")
            page.until("document.querySelector('.md-search-result__item a') !== null", 30)
            found[term] = [link.removeprefix(address).partition("?")[0] for link in page.run(first_two)]
    first = {term: pages[0] for term, pages in found.items() if term in SEARCHED}
    assert {term: where for term, where in first.items() if not where.startswith(SEARCHED[term])} == {}
    assert {term: found[term] for term in ASKED if ASKED[term] not in found[term]} == {}


LED_ON = {
    "pawlock.Lease": "lock",
    "pawlock.Client.lock": "client",
    "pawlock.aio.election.AsyncLeaders.close": "election",
}
"""What an address of the page that had the whole API names, and the page that has it now."""


@in_browser
def test_old_addresses_of_the_api_lead_on(address: str, tmp_path: Path) -> None:
    here = f"{address}reference/api/"
    wanted = {f"#{name}": f"{topic}/#{name}" for name, topic in LED_ON.items()}
    wanted |= {anchor: anchor for anchor in ("#threads", "#several-masters", "#pawlock.Nothing")}
    with Browser(tmp_path / "chromium") as page:
        page.shape("light", 1366)
        page.open(address)
        # In a frame: a page that goes on to another one breaks off the script that looks at it.
        for old, new in wanted.items():
            page.run(f"document.body.innerHTML = '<iframe src=\"{here}{old}\"></iframe>'")
            there = (
                f"frames[0].location.href === '{here}{new}' && frames[0].document.readyState === 'complete'"
            )
            page.until(there)
            if old != new:
                assert page.run(f"frames[0].document.getElementById('{old[1:]}') !== null"), old


@in_browser
def test_no_page_is_longer_than_25_screens(site: Path, address: str, tmp_path: Path) -> None:
    height = "document.querySelector('.md-content').scrollHeight"
    long: dict[str, float] = {}
    with Browser(tmp_path / "chromium") as page:
        page.shape("light", 1366)
        for file in pages(site):
            name = file.parent.relative_to(site).as_posix()
            page.open(address + ("" if name == "." else name + "/"))
            if (screens := page.run(height) / 768) > 25:
                long[name] = screens
    assert long == {}


@in_browser
@pytest.mark.timeout(400)
@pytest.mark.parametrize("width", [1366, 390])
def test_no_code_block_scrolls_sideways(site: Path, address: str, tmp_path: Path, width: int) -> None:
    wide = """[...document.querySelectorAll('.md-content pre, .md-content pre > code')]
        .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline')
        .map((one) => one.textContent.slice(0, 60))"""
    tables = """[...document.querySelectorAll('.md-typeset__table, .md-typeset__scrollwrap')]
        .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.innerText.slice(0, 60))"""
    body = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    seen, bad = 0, {}
    with Browser(tmp_path / "chromium") as page:
        page.shape("light", width)
        for file in pages(site):
            name = file.parent.relative_to(site).as_posix()
            page.open(address + ("" if name == "." else name + "/"))
            seen += page.run("document.querySelectorAll('.md-content pre').length")
            over = [*page.run(wide), *(["the page itself"] if page.run(body) > 0 else [])]
            scrolling = page.run(tables) if width == 1366 else []
            over += scrolling
            if over:
                bad[name] = over
    assert seen > 300
    assert bad == {}
