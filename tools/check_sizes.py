"""Check what no linter knows: no machine's own paths, no record of the core that holds too much; and warn of length.

In `core/`, no class has more than 20 attributes and no function takes more than 7 parameters: who must know more than
that at once is handed a record. What is longer than 500 lines (a file) or 40 (a function) is warned of: what counts is
one idea in a file, and one step in a function.

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
CORE = ("src", "pawlock", "core")
ATTRIBUTES = 20
PARAMETERS = 7
ALLOWED = {
    "LockOptions": "public: one attribute for each option that a user may give",
}
"""Classes and functions of the core that may hold or take more, and why."""
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


def attributes(node: ast.ClassDef) -> set[str]:
    """List what the objects of a class hold, as far as the class itself says it: by annotation, slot or assignment."""
    found: set[str] = set()
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            if "ClassVar" not in ast.unparse(line.annotation):
                found.add(line.target.id)
        elif isinstance(line, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__slots__" for target in line.targets
        ):
            names = [one.value for one in ast.walk(line.value) if isinstance(one, ast.Constant)]
            found |= {name for name in names if isinstance(name, str)} - {"__weakref__"}
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.args.args:
            me = method.args.args[0].arg
            found |= {
                one.attr
                for one in ast.walk(method)
                if isinstance(one, ast.Attribute)
                and isinstance(one.ctx, ast.Store)
                and isinstance(one.value, ast.Name)
                and one.value.id == me
            }
    return found


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count what a function is given, without the object that a method belongs to."""
    given = [*node.args.posonlyargs, *node.args.args]
    if given and given[0].arg in ("self", "cls"):
        del given[0]
    return len(given) + len(node.args.kwonlyargs)


def overloaded(trees: dict[Path, ast.Module]) -> Iterator[str]:
    """Yield each class that holds too much, with what it inherits, and each function that takes too much.

    Args:
        trees: The modules of the core.
    """
    places = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    classes = {node.name: node for _, node in places if isinstance(node, ast.ClassDef)}

    def held(name: str) -> set[str]:
        if name not in classes:
            return set()
        node = classes[name]
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != name]
        return attributes(node).union(*[held(base) for base in bases])

    for path, node in places:
        if isinstance(node, ast.ClassDef):
            bases = [held(base.id) for base in node.bases if isinstance(base, ast.Name)]
            count, most, what = len(attributes(node).union(*bases)), ATTRIBUTES, "attributes"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count, most, what = parameters(node), PARAMETERS, "parameters"
        else:
            continue
        if count > most and node.name not in ALLOWED:
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            yield f"{where}: {node.name} has {count} {what}, at most {most}: which of them belong together?"


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
    core = {
        path: ast.parse(text, str(path))
        for path, text in texts
        if path.suffix == ".py" and path.relative_to(ROOT).parts[:3] == CORE
    }
    found += overloaded(core)
    noted = [line for path, text in texts for line in warnings(path, text)]
    print("\n".join([*found, *noted]) or "sizes and words are fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
