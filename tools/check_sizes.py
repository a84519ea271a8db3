"""Check what no linter knows: no path of one machine, and no record of the core that holds too much.

In `core/`, no class has more than 20 attributes and no function takes more than 7 parameters: who must know more than
that at once is handed a record.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ("src", "pawlock", "core")
ATTRIBUTES = 20
PARAMETERS = 7
ALLOWED = {
    "LockOptions": "public: one attribute for each option that a user may give",
}
"""Classes and functions of the core that may hold or take more, and why."""
TEXT = (".py", ".lua", ".sh", ".md", ".toml", ".yml", ".yaml", ".txt", ".cfg", ".ini", ".html", ".css", ".js")
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


def problems(path: Path, text: str) -> Iterator[str]:
    """Yield each path of one machine in a file."""
    if not MACHINE_PATH.search(text):
        return
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


def main() -> int:
    """Print every problem; 1 when there is one."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in files()]
    found = [line for path, text in texts for line in problems(path, text)]
    core = {
        path: ast.parse(text, str(path))
        for path, text in texts
        if path.suffix == ".py" and path.relative_to(ROOT).parts[:3] == CORE
    }
    found += overloaded(core)
    print("\n".join(found) or "no class or function of the core is too large")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
