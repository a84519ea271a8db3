"""Mutants of Python modules: one comparison, operator, constant, return or statement changed in each."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
_WORDS: dict[type[ast.boolop], str] = {ast.And: "and", ast.Or: "or"}
EXTREMES = {"min": "max", "max": "min"}
TELLS = ("log", "warn", "warnings", "logging")
"""Names whose calls only tell: a change there changes no decision."""
SHOWN = ("__repr__", "__str__")
"""Methods that only show."""


class Mutant(NamedTuple):
    """One change.

    Attributes:
        name: File, function and what was changed, with a number where that is not unique. Other changes of the file
            leave it as it is.
        file: Below the package.
        line: Where it is now.
        lasting: It is run when the module is loaded: what notices it is whatever uses the module.
        write: Gives the whole file with the change.
    """

    name: str
    file: str
    line: int
    lasting: bool
    write: Callable[[], str]


def all_of(package: Path, folder: str) -> list[Mutant]:
    """List the mutants of a folder's modules, in a fixed order."""
    return [
        mutant for path in sorted((package / folder).rglob("*.py")) for mutant in of_module(package, path)
    ]


def of_module(package: Path, path: Path) -> Iterator[Mutant]:
    """Give the mutants of one module."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    file = path.relative_to(package).as_posix()
    met: Counter[str] = Counter()
    for number, (line, where, what) in enumerate(_changes(tree, None)):
        name = f"{file} {where}: {what}" if where else f"{file} {what}"
        inner = where.rpartition(".")[2].lstrip("_")
        yield Mutant(
            unique(name, met), file, line, not inner or inner[0].isupper(), partial(_written, source, number)
        )


def unique(name: str, met: Counter[str]) -> str:
    """Number a name from the second time on that it is met."""
    met[name] += 1
    return name if met[name] == 1 else f"{name} ({met[name]})"


def _written(source: str, wanted: int) -> str:
    tree = ast.parse(source)
    for _ in _changes(tree, wanted):
        pass
    return ast.unparse(ast.fix_missing_locations(tree))


def _changes(tree: ast.Module, wanted: int | None) -> Iterator[tuple[int, str, str]]:
    """Give line, place and name of each change there could be; make the wanted one."""
    number = -1
    for where, parent, field, index, node in list(_nodes(tree, "")):
        for what, replacement in _replacements(parent, node):
            number += 1
            if number == wanted:
                if index is None:
                    setattr(parent, field, replacement)
                else:
                    getattr(parent, field)[index] = replacement
            yield getattr(node, "lineno", 0), where, what[:80]


def _nodes(node: ast.AST, where: str) -> Iterator[tuple[str, ast.AST, str, int | None, ast.AST]]:
    """Walk over what decides something: no annotations, docstrings, texts of errors, or what only tells."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST) or _tells(child):
                continue
            yield where, node, field, index if isinstance(value, list) else None, child
            if not isinstance(child, (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)):
                yield from _nodes(child, _inside(where, child))


def _inside(where: str, node: ast.AST) -> str:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return f"{where}.{node.name}".lstrip(".")
    return where


def _tells(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef) and node.name in SHOWN:
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return isinstance(target, ast.Name) and (target.id.startswith("__") or target.id in TELLS)
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func).split(".")[0] in TELLS


def _replacements(parent: ast.AST, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.stmt):
        yield from _statements(parent, node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARE:
        other = COMPARE[type(node.ops[0])]
        yield f"{other.__name__} in {ast.unparse(node)}", ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        swapped: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{_WORDS[type(swapped)]} in {ast.unparse(node)}", ast.BoolOp(swapped, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"no not in {ast.unparse(node)}", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        changed = ARITHMETIC[type(node.op)]
        yield f"{changed.__name__} in {ast.unparse(node)}", ast.BinOp(node.left, changed(), node.right)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
        extreme = ast.Name(EXTREMES[node.func.id], ast.Load())
        yield f"{extreme.id} in {ast.unparse(node)}", ast.Call(extreme, node.args, node.keywords)


def _constants(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.value, bool):
        yield f"{node.value} negated", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield f"{node.value} plus one", ast.Constant(node.value + 1)
    elif isinstance(node.value, float):
        yield f"{node.value} changed", ast.Constant(node.value * 2 + 1)


def _statements(parent: ast.AST, node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    text = " ".join(ast.unparse(node).split())[:60]
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield f"None for {text}", ast.Return(ast.Constant(None))
    elif _can_go(parent, node):
        yield f"without {text}", ast.Pass()


def _can_go(parent: ast.AST, node: ast.stmt) -> bool:
    """Whether a statement may be left out: a first setting of a field may not, as that is nothing but a crash."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, (ast.Yield, ast.YieldFrom))
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        return not (isinstance(parent, ast.FunctionDef) and parent.name == "__init__")
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break))


def plain(source: str) -> str:
    """Write a module as its mutants are written: without comments, in one style."""
    return ast.unparse(ast.parse(source))
