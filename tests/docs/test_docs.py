"""Every ```python block of README.md and docs/ runs, page by page, against a real server.

The blocks of a page share one namespace, as a reader would type them one after the other; `await` at top
level works. Blocks in other languages are shown only. There is no way to leave a python block out: an example
that cannot run is not shown as one.
"""

import ast
import asyncio
import contextlib
import gc
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.support.etcd import Etcd
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.servers import Server

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL
)
RUNNABLE = {"python", "py", "python3", "pycon"}
_NUMBERS = count(1)
GROUPS: dict[str, dict[str, Callable[[], ClusterGroup | SentinelGroup | Etcd]]] = {
    "docs/how-to/failover.md": {
        "sentinel_url": partial(SentinelGroup, replicas=2, sentinels=3),
        "cluster_url": partial(ClusterGroup, masters=3),
    },
    "docs/how-to/redis-or-etcd.md": {"url": Etcd},
}
"""What names of addresses lead to on a page: servers that a reader has, and that no example starts."""
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: The first word after the fence.
        code: Its text, at the page's own line numbers, so that a traceback points into the page.
        line: Where its code begins.
    """

    language: str
    code: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        margin = len(match["indent"])
        code = "".join(row[margin:] or "\n" for row in match["code"].splitlines(keepends=True))
        yield Block((match["info"].split() or [""])[0], "\n" * (line - 1) + code, line)


def name_of(page: Path) -> str:
    """Name a page as a reader of the repository would."""
    return str(page.relative_to(ROOT))


def runnable(page: Path) -> list[Block]:
    """List the python blocks of a page."""
    return [block for block in blocks(page.read_text(encoding="utf-8")) if block.language in RUNNABLE]


def run_block(block: Block, page: str, namespace: dict[str, object], runner: asyncio.Runner) -> None:
    """Run one block; a block with `await` at top level runs in the page's event loop."""
    code = compile(block.code, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:

        async def body() -> None:
            await types.FunctionType(code, namespace)()

        runner.run(body())
    else:
        exec(code, namespace)


def close_clients(namespace: dict[str, object], runner: asyncio.Runner) -> None:
    """Close the clients that a page left open, since most examples do not show the end of a program."""
    for value in list(namespace.values()):
        kind = type(value)
        if kind.__module__.partition(".")[0] != "pawlock" or not hasattr(value, "close"):
            continue
        if kind.__name__.startswith("Async"):

            async def close(client: object = value) -> None:
                await client.close()  # type: ignore[attr-defined]

            runner.run(close())
        else:
            value.close()


def have_a_django_project(folder: Path) -> None:
    """Give Django what its pages take for granted: settings, of which a process has one set, and a database."""
    import django
    from django.conf import settings

    if not settings.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "site.db")}
        settings.configure(DATABASES={"default": database})
        django.setup()


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=name_of)
def test_the_examples_of_a_page_run(
    page: Path,
    valkey: Server,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    valkey.command("FLUSHALL")
    if any("from django." in block.code for block in runnable(page)):
        have_a_django_project(tmp_path_factory.getbasetemp())
    monkeypatch.setenv("PAWLOCK_URL", valkey.url)
    monkeypatch.chdir(tmp_path)
    # As a module that can be found: some libraries look up the one that a function is from. Celery keeps the tasks of
    # each, by its name, for all of its later apps.
    module = types.ModuleType(f"__page_{next(_NUMBERS)}__")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    namespace = module.__dict__
    with contextlib.ExitStack() as stack:
        for name, make in GROUPS.get(name_of(page), {}).items():
            group = make()
            stack.enter_context(group)
            namespace[name] = group.url
        runner = stack.enter_context(contextlib.closing(asyncio.Runner()))
        try:
            for block in runnable(page):
                run_block(block, name_of(page), namespace, runner)
        finally:
            close_clients(namespace, runner)
    # What a page forgot to close is found here, by the warning of its finalizer, not at the end of the whole run.
    namespace.clear()
    gc.collect()


def test_every_example_is_marked_python_and_none_is_left_out() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("```") % 2 == 0, f"{page}: a fence is not closed"
        odd = [
            block for block in blocks(text) if block.language in RUNNABLE - {"python"} or not block.language
        ]
        assert not [f"{page}:{block.line}: ```{block.language}" for block in odd]
        left_out = re.findall(r"<!-- *no-run.*?-->\s*```python", text)
        assert not left_out, f"{page}: a python block must run; show what cannot as text"


def test_the_rules_on_the_security_page_are_those_that_pawlock_ships() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    (rule,) = [line for line in page.splitlines() if line.startswith("ACL SETUSER")]
    shipped = (ROOT / "src/pawlock/pawlock.acl").read_text(encoding="ascii")
    assert rule == shipped.replace("user ", "ACL SETUSER ", 1).strip(), "take over what it says"


def test_blocks_are_found_indented_and_at_their_lines() -> None:
    text = "one\n\n    ```python title=x\n    a = 1\n\n    b = 2\n    ```\n\n```text\nno\n```\n"
    found = list(blocks(text))
    assert [(block.language, block.line) for block in found] == [("python", 4), ("text", 10)]
    namespace: dict[str, object] = {}
    exec(compile(found[0].code, "page", "exec"), namespace)
    assert (namespace["a"], namespace["b"]) == (1, 2)


def test_a_block_with_await_runs_in_the_loop_of_its_page() -> None:
    namespace: dict[str, object] = {}
    with contextlib.closing(asyncio.Runner()) as runner:
        run_block(
            Block("python", "import asyncio\nloop = asyncio.get_running_loop()\nawait asyncio.sleep(0)", 1),
            "p",
            namespace,
            runner,
        )
        run_block(
            Block("python", "await asyncio.sleep(0)\nassert loop is asyncio.get_running_loop()", 4),
            "p",
            namespace,
            runner,
        )
    assert "loop" in namespace
