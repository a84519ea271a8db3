"""Write the shells of `src/pawlock/sync/` from those of `src/pawlock/aio/`, or check that they are what it would write.

    python tools/make_sync.py           write them
    python tools/make_sync.py --check   1 if one differs from what its shell of asyncio gives

Change the module in `aio/`, run it, commit both. It rewrites the text by the positions in the syntax tree, so comments
stay; ruff drops the imports that threads do not need, sorts and formats.

What truly differs is written by hand (`BY_HAND`):

- `lifecycle.py`: a client of asyncio has an engine for each event loop, and they end with it; one of threads has one
  engine, ended by the process, a fork or the garbage collector, and it warns where it blocks an event loop.
- `block.py`: a loss cancels the task in its block, and leaving it has to tell that cancel from others; a thread is
  interrupted by signal handlers, at steps where asyncio has none. An acquisition of asyncio can be awaited, entered, or
  made a task of; that of threads is there at once.
- `leading.py`: asyncio runs the leader's function in a task of its own, to cancel it; threads call it.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import re
import subprocess
import sys
import textwrap
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "pawlock"
BIN = Path(sys.executable).parent

BY_HAND = ("__init__", "block", "leading", "lifecycle")
GENERATED = tuple(sorted({file.stem for file in (PACKAGE / "aio").glob("*.py")}.difference(BY_HAND)))
"""The modules of `sync/` that this writes."""

HEADER = "# Written by tools/make_sync.py from aio/{name}.py: change that, and run it.\n"

NAMES = (
    (r"\b(Base)?Async(?=[A-Z])", r"\1"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\bpawlock\.aio\b", "pawlock.sync"),
    (r"\bengine_here\b", "engine_of"),
    (r"\b(connect|decorated|decorated_once|guard)_async\b", r"\1"),
)
"""What a name becomes, in code and in text."""

WORDS = (
    (r"``await ", "``"),
    (r"\basync with\b", "with"),
    (r"\b([Aa])n async context manager\b", r"\1 context manager"),
    (r"\b([Aa])n async iterator\b", r"\1n iterator"),
    (r"\bDecorate a coroutine function\b", "Decorate a function"),
    (r"\btask(s?)\b", r"thread\1"),
    (r"\b(for|of) asyncio\b", r"\1 threads"),
)
"""What a word becomes, in docstrings and comments."""

SENTENCES = (
    r"Await it, or enter it with ``async with``\.",
    r"While a task is inside ``async with``, a loss [^.]*\.",
    r"Used in several event loops, [^.]*\.",
    r"A loss cancels a coroutine at its next await\.",
    r"NotSupported: This is another event loop than that which acquired it[^.]*\.",
)
"""What only asyncio has to say in a docstring."""

AT_ONCE = "acquired"
"""`Acquiring(acquired(…))`, an acquisition to await or to enter, is made at once by threads: `at_once(ACQUIRE[…](…))`.
So is that of any other call, under its own name."""

MAKER = "how"
"""What an acquisition is made by that is awaited where it is made: threads make it at once, too."""

LATER = "Acquiring"
LATER_TYPES = ("Acquiring", "Awaitable", "Coroutine")

ONLY_ASYNCIO = "check_home"
"""What threads have nothing like: a call of it is left out."""

CORE = ("self._wait", "self._watch.next", "self._book.acquire", "self._book.release", "self._book.renew")
"""Coroutines of the core that are methods; those that are functions are known by their imports."""

IMPORTS = ("from pawlock._fallback import ACQUIRE\n", "from pawlock.runtimes.threads import at_once, run\n")
"""What only threads need."""

_Node = ast.expr | ast.stmt


class Converter(ast.NodeVisitor):
    """Collects what to replace in one module: from, to (bytes), and by what."""

    def __init__(self, source: str) -> None:
        self.text = source.encode()
        self.edits: list[tuple[int, int, str]] = []
        self._lines = [0]
        for line in self.text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._core: set[str] = set()

    def converted(self) -> str:
        """The module for threads, before its words are."""
        self.visit(ast.parse(self.text))
        text = self.text
        for start, end, new in sorted(self.edits, reverse=True):
            text = text[:start] + new.encode() + text[end:]
        return text.decode()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note what is no shell; what only threads need comes behind the first import."""
        if not str(node.module).startswith("pawlock.aio"):
            self._core |= {name.asname or name.name for name in node.names}
        if node.module == "__future__":
            end = self._lines[node.lineno]
            self.edits.append((end, end, "\n" + "".join(IMPORTS)))

    def _drop_word(self, node: _Node) -> None:
        start = self._start(node)
        self.edits.append((start, start + len("async "), ""))
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_AsyncWith = visit_AsyncFor = _drop_word  # noqa: N815 - as `ast` calls them

    def visit_Await(self, node: ast.Await) -> None:
        """An operation of the core is run; a call of another shell just is no longer awaited."""
        call = node.value
        called = ast.unparse(call.func) if isinstance(call, ast.Call) else ast.unparse(call)
        ours = called in CORE or called.split(".")[0] in self._core or called == MAKER
        start, end = self._start(node), self._end(node)
        stop = end
        if self.text[start - 1 : start] + self.text[end : end + 2] == b"().":
            start, stop = start - 1, end + 1
        runs = "at_once(" if called == MAKER else "run("
        self.edits.append((start, self._start(call), runs if ours else ""))
        self.edits.append((end, stop, ")" if ours else ""))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """What is made to be awaited or entered is made at once."""
        if isinstance(node.func, ast.Name) and node.func.id == LATER:
            begun = node.args[0]
            if isinstance(begun, ast.Call) and ast.unparse(begun.func) == AT_ONCE:
                self._replace(node.func, "at_once")
                self._replace(begun.func, "ACQUIRE[plan.options.on_unavailable]")
                # What is awaited later keeps its client.
                self._replace(begun.args[0], f"engine_of({ast.unparse(begun.args[0])})")
            else:
                self._keep(node, begun)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave out a call that only asyncio needs."""
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == ONLY_ASYNCIO:
            self._drop(node)
        else:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """`Acquiring[X]`, `Awaitable[X]` and `Coroutine[Any, Any, X]` are an X."""
        if isinstance(node.value, ast.Name) and node.value.id in LATER_TYPES:
            result = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
            self._keep(node, result)
            self.visit(result)
        else:
            self.generic_visit(node)

    def _replace(self, node: _Node, text: str) -> None:
        self.edits.append((self._start(node), self._end(node), text))

    def _drop(self, node: ast.stmt) -> None:
        self.edits.append((self._lines[node.lineno - 1], self._lines[node.end_lineno or 0], ""))

    def _keep(self, node: _Node, part: _Node) -> None:
        """Put a part of it in its place."""
        self.edits.append((self._start(node), self._start(part), ""))
        self.edits.append((self._end(part), self._end(node), ""))

    def _start(self, node: _Node) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: _Node) -> int:
        return self._lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def in_words(text: str) -> str:
    """The same with its docstrings and comments told of threads."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token in reversed(tokens):
        docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if not docstring and token.type != tokenize.COMMENT:
            continue
        (first, begins), (last, ends) = token.start, token.end
        told = _told(token.string, " " * begins) if docstring else _replaced(WORDS, token.string)
        lines[first - 1 : last] = [lines[first - 1][:begins] + told + lines[last - 1][ends:]]
    return "".join(lines)


def _told(docstring: str, indent: str) -> str:
    parts = docstring.removesuffix('"""').rstrip().split("\n\n")
    for index, part in enumerate(parts):
        said = part
        for sentence in SENTENCES:
            said = re.sub(r"\s*" + sentence.replace(" ", r"\s+"), "", said)
        if said != part and said.strip() and not said.strip().startswith("Raises:"):
            # A sentence is gone from its middle: its lines are filled again.
            said = textwrap.fill(" ".join(said.split()), 120, initial_indent=indent, subsequent_indent=indent)
            said = said[len(indent) :] if index == 0 else said
        parts[index] = said
    text = "\n\n".join(part for part in parts if part.strip())
    return _replaced(WORDS, text) + (f'\n{indent}"""' if "\n" in text else '"""')


def _replaced(table: tuple[tuple[str, str], ...], text: str) -> str:
    for pattern, new in table:
        text = re.sub(pattern, new, text)
    return text


def tidied(text: str, name: str) -> str:
    """The same without unused imports, sorted and formatted."""
    read = ("--quiet", "--config", "pyproject.toml", "--stdin-filename", f"src/pawlock/sync/{name}.py", "-")
    for command in (("check", "--fix", "--select", "F401,I001,RUF022"), ("format",)):
        done = subprocess.run(
            [BIN / "ruff", *command, *read], input=text, capture_output=True, text=True, cwd=ROOT, check=False
        )
        if done.returncode or not done.stdout:
            raise SystemExit(f"{name}: {done.stderr or done.stdout or text}")
        text = done.stdout
    return text


def sync_of(source: str, name: str) -> str:
    """What a module of `aio/` is in `sync/`."""
    text = _replaced(NAMES, in_words(Converter(source).converted()))
    text = tidied(HEADER.format(name=name) + text, name)
    if re.search(r"^(import|from) asyncio\b", text, re.MULTILINE):
        raise SystemExit(f"aio/{name}.py uses asyncio itself: leave that to a module that is written by hand")
    return text


def main(argv: list[str] | None = None) -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a module differs")
    check = parser.parse_args(argv).check
    differing: list[str] = []
    for name in GENERATED:
        wanted = sync_of((PACKAGE / "aio" / f"{name}.py").read_text(encoding="utf-8"), name)
        target = PACKAGE / "sync" / f"{name}.py"
        found = target.read_text(encoding="utf-8") if target.exists() else ""
        if found == wanted:
            continue
        differing.append(name)
        if check:
            lines = found.splitlines(), wanted.splitlines()
            print(
                "\n".join(difflib.unified_diff(*lines, f"sync/{name}.py", f"of aio/{name}.py", lineterm=""))
            )
        else:
            target.write_text(wanted, encoding="utf-8")
    if check and differing:
        print(f"src/pawlock/sync/ is not what src/pawlock/aio/ gives: {', '.join(differing)}")
        print("change the module in aio/, run `.venv/bin/python tools/make_sync.py`, commit both")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
