"""Mutants of Python modules: one comparison, operator, constant, return or statement changed in each."""

import ast
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
EXTREMES = {"min": "max", "max": "min"}
TELLS = ("log", "warn", "logging")
"""Names whose calls only tell: a change there changes no decision."""


class Mutant(NamedTuple):
    """One change.

    Attributes:
        name: File, line, and what was changed; unique in a file by a number at its end.
        file: Below the package.
        write: Gives the whole file with the change.
    """

    name: str
    file: str
    write: Callable[[], str]


def all_of(package: Path, folder: str) -> list[Mutant]:
    """List the mutants of a folder's modules, in a fixed order."""
    return [mutant for path in sorted((package / folder).glob("*.py")) for mutant in of_module(package, path)]


def of_module(package: Path, path: Path) -> Iterator[Mutant]:
    """Give the mutants of one module."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    file = path.relative_to(package).as_posix()
    for number, (line, what) in enumerate(_changes(tree, None)):
        yield Mutant(f"{file}:{line} {what} #{number}", file, partial(_written, source, number))


def _written(source: str, wanted: int) -> str:
    tree = ast.parse(source)
    for _ in _changes(tree, wanted):
        pass
    return ast.unparse(ast.fix_missing_locations(tree))


def _changes(tree: ast.Module, wanted: int | None) -> Iterator[tuple[int, str]]:
    """Give line and name of each change there could be; make the wanted one."""
    number = -1
    for parent, field, index, node in list(_nodes(tree)):
        for what, replacement in _replacements(parent, node):
            number += 1
            if number == wanted:
                if index is None:
                    setattr(parent, field, replacement)
                else:
                    getattr(parent, field)[index] = replacement
            yield getattr(node, "lineno", 0), what


def _nodes(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Walk over what decides something: no annotations, docstrings, texts of errors, or what only tells."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST) or _tells(child):
                continue
            yield node, field, index if isinstance(value, list) else None, child
            if not isinstance(child, (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)):
                yield from _nodes(child)


def _tells(node: ast.AST) -> bool:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return isinstance(target, ast.Name) and (target.id.startswith("__") or target.id == "log")
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
        yield f"{ast.unparse(node)} to {other.__name__}", ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        swapped: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{ast.unparse(node)} swapped", ast.BoolOp(swapped, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)} without not", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        changed = ARITHMETIC[type(node.op)]
        yield f"{ast.unparse(node)} to {changed.__name__}", ast.BinOp(node.left, changed(), node.right)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
        extreme = ast.Name(EXTREMES[node.func.id], ast.Load())
        yield f"{ast.unparse(node)} the other way", ast.Call(extreme, node.args, node.keywords)


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
        yield f"{text} gives None", ast.Return(ast.Constant(None))
    elif _can_go(parent, node):
        yield f"{text} left out", ast.Pass()


def _can_go(parent: ast.AST, node: ast.stmt) -> bool:
    """Whether a statement may be left out: a first setting of a field may not, as that is nothing but a crash."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, (ast.Yield, ast.YieldFrom))
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        return not (isinstance(parent, ast.FunctionDef) and parent.name == "__init__")
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break))
