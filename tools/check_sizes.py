"""Check what no linter knows: no machine's own paths; and warn of files over 500 lines and functions over 40.

The sizes are warnings: what counts is one idea in a file, and one step in a function.

A function is counted from its `def` to its end without its docstring: a public function is meant to explain
itself at length, and must not be punished for it.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 500
FUNCTION_LINES = 40
CODE = {".py", ".lua", ".sh"}
TEXT = CODE | {".md", ".toml", ".yml", ".yaml", ".txt", ".cfg", ".ini", ".html", ".css", ".js"}
# A path below one person's or one machine's folders means nothing to anybody else.
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:work|root|Users/\w+|home/\w+)/")


def files() -> list[Path]:
    """List what belongs to the project: what git tracks or would, or all files where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        found = [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.parts)]
    return sorted(
        path for path in found if path.is_file() and (path.suffix in TEXT or path.name == "Makefile")
    )


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without its decorators and docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def problems(path: Path, text: str) -> Iterator[str]:
    """Yield each way in which a file is not as it should be."""
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATH.search(line) and not line.startswith("#!"):
            yield f"{path.relative_to(ROOT)}:{number}: a path of one machine: {line.strip()}"


def warnings(path: Path, text: str) -> Iterator[str]:
    """Yield what is so long that it may hold more than one idea."""
    where, lines = path.relative_to(ROOT), len(text.splitlines())
    if path.suffix in CODE and lines > FILE_LINES:
        yield f"warning: {where}: {lines} lines; is it one idea?"
    if path.suffix != ".py" or where.parts[0] != "src":
        return
    for node in ast.walk(ast.parse(text, str(where))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and function_lines(node) > FUNCTION_LINES:
            yield (
                f"warning: {where}:{node.lineno}: {node.name} has {function_lines(node)} lines without its "
                "docstring; is it one step?"
            )


def main() -> int:
    """Print every problem and every warning; 1 when there is a problem."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in files()]
    found = [line for path, text in texts for line in problems(path, text)]
    noted = [line for path, text in texts for line in warnings(path, text)]
    print("\n".join([*found, *noted]) or "sizes and words are fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
