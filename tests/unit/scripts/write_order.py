"""Follows every path through a script, and finds what may stop it after its first write.

A script is not rolled back, so whatever can stop it must come before it writes:

* a key of a wrong type: whatever is read or written as a hash, a set, a list or a text was looked at as one before;
* a key that is gone: a key that loses its last member is deleted, and in a slot that moves to another node of a cluster
  no command may name a key that is not there. So nothing names a key again from which something was taken away, unless
  was given a member in the same run, or the rest of a long row is taken out of it;
* an error that the script itself answers with.

What a server without memory refuses is decided by a script's first write: ``HSET``, ``SET`` and their like are refused,
``DEL``, ``ZREM`` and ``PEXPIREAT`` are not, and whatever follows passes.

What no path shows is said in the scripts: ``--@keeps KEY …``, these have a member that stays; ``--@knows KEY type``, it
is of that type or not there; ``--@clean``, nothing was written yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pawlock
from pawlock.core.scripts import header, load
from tests.support.scripts import package_of
from tests.unit.scripts.lua_syntax import Node, parse

__all__ = ["HOME", "Findings", "assembled", "examine", "scripts"]

HOME = Path(pawlock.__file__).parent
_INCLUDE = re.compile(r"^--@include (?:(\w+)\.)?(\w+)$", re.MULTILINE)

_TYPED = {
    "GET": "string", "HSET": "hash", "HSETNX": "hash", "HINCRBY": "hash", "HDEL": "hash", "HGET": "hash",
    "HMGET": "hash", "HEXISTS": "hash", "HLEN": "hash", "HKEYS": "hash", "HGETALL": "hash", "HRANDFIELD": "hash",
    "ZADD": "zset", "ZREM": "zset", "ZREMRANGEBYSCORE": "zset", "ZCARD": "zset", "ZCOUNT": "zset", "ZRANGE": "zset",
    "ZRANGEBYSCORE": "zset", "ZRANK": "zset", "ZSCORE": "zset", "LPUSH": "list",
    "LINDEX": "list", "LRANGE": "list", "LTRIM": "list",
}  # fmt: skip
_ANY_TYPE = frozenset({"DEL", "EXISTS", "PTTL", "PEXPIRE", "PEXPIREAT", "SET"})
_KEYLESS = frozenset({"TIME", "INFO", "PUBLISH", "SPUBLISH", "SCAN", "DBSIZE"})
_FILLS = frozenset({"SET", "HSET", "HSETNX", "HINCRBY", "ZADD", "LPUSH"})
_FREES = frozenset({"DEL", "HDEL", "ZREM", "ZREMRANGEBYSCORE", "LTRIM", "PEXPIREAT"})
_TAKES = _FREES - {"PEXPIREAT"}

_KINDS = frozenset(_TYPED.values())

State = frozenset[tuple[str, str]]
"""What is known on a path: ``(key, fact)``; the facts of the path itself are those of the key ``""``."""

_START: State = frozenset()


def scripts() -> Iterator[tuple[str, Path]]:
    """Every script that pawlock sends: its name and file."""
    for file in sorted(HOME.rglob("*.lua")):
        if not file.name.startswith("_") and "testing" not in file.parts:
            yield f"{file.parent.name}/{file.stem}", file


def assembled(file: Path, edit: Callable[[str], str] = lambda text: text, variant: str = "") -> str:
    """A script with all that it includes, comments and all; of a key that is shared with others, its variant."""
    shared = HOME / "primitives"

    def text_of(folder: Path, name: str) -> str:
        path = folder / f"{name}.lua"
        path = path if path.is_file() else shared / f"{name}.lua"
        found = path.read_text()
        return _INCLUDE.sub(
            lambda line: text_of(shared / line[1] if line[1] else path.parent, line[2]), found
        )

    prelude = text_of(shared / "key", f"_{variant}") if variant else text_of(shared, "_prelude")
    return edit(prelude + "\n" + text_of(file.parent, file.stem))


@dataclass
class Findings:
    """What is wrong with a script, and how a server without memory meets it.

    Attributes:
        wrong: What may stop it after its first write.
        refused: Whether a path begins with a write that such a server refuses.
        fills: What is written, the record of the fences apart, on paths that such a server does not stop.
    """

    wrong: set[str] = field(default_factory=set)
    refused: bool = False
    fills: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Scope:
    """What names mean: keys, and the functions of the script."""

    keys: dict[str, str]
    functions: dict[str, tuple[list[str], list[Node]]]


def examine(file: Path, edit: Callable[[str], str] = lambda text: text, variant: str = "") -> Findings:
    """Follow every path of a script; to a variant, the name is as it is to an ordinary one."""
    listed = re.sub(r"\([^)]*\)", "", header(file.read_text(), file.stem)["keys"]).split(",")
    keys = [key.strip() for key in listed]
    count = load(package_of(file.parent.name), file.stem, variant).numkeys if variant else len(keys)
    walk = _Walk(count, f"KEYS[{keys.index('fence') + 1}]" if "fence" in keys else "")
    walk.block(parse(assembled(file, edit, variant)), {_START}, _Scope({}, {}))
    return walk.found


@dataclass(frozen=True)
class _Step:
    """A command: its name and keys; whether an error of it is caught, it takes nothing away, it only changes what is
    there, and the fact about a key that it takes something from."""

    name: str
    keys: tuple[str, ...]
    guarded: bool
    nothing: bool
    there: bool
    gone: str


@dataclass
class _Ways:
    """The paths behind a piece of a script: those that go on, that end a loop, and that end the function."""

    on: set[State] = field(default_factory=set)
    out: set[State] = field(default_factory=set)
    done: set[State] = field(default_factory=set)


class _Walk:
    def __init__(self, keys: int, fence: str) -> None:
        self.found = Findings()
        self.count, self.fence = keys, fence

    # Statements -------------------------------------------------------------------------------------------------

    def block(self, nodes: list[Node], states: set[State], scope: _Scope) -> _Ways:
        ways = _Ways(on=states)
        for node in nodes:
            if not ways.on:
                break
            found = self.statement(node, ways.on, scope)
            ways.on = found.on
            ways.out |= found.out
            ways.done |= found.done
        return ways

    def statement(self, node: Node, states: set[State], scope: _Scope) -> _Ways:
        kind = node[0]
        if kind == "def":
            scope.functions[node[1]] = node[2], node[3]
        elif kind == "call":
            states = self.value(node[1], states, scope)
        elif kind == "assign":
            states = self.assign(node, states, scope)
        elif kind == "mark":
            states = self.mark(node[1], states, scope)
        elif kind == "return":
            return _Ways(done=self.give(node[1], states, scope))
        elif kind == "break":
            return _Ways(out=states)
        elif kind == "if":
            return self.branch(node, states, scope)
        else:
            return self.loop(node, states, scope)
        return _Ways(on=states)

    def assign(self, node: Node, states: set[State], scope: _Scope) -> set[State]:
        for value in node[2]:
            states = self.value(value, states, scope)
        for target, value in zip(node[1], node[2], strict=False):
            if target[0] == "index":
                states = self.value(target[2], states, scope)
            elif value[0] == "lambda":
                scope.functions[target[1]] = value[1], value[2]
            elif (key := self.key(value, scope)) is not None:
                scope.keys[target[1]] = key
                if key.endswith("?"):
                    # Another name's key from here on.
                    states = {
                        frozenset(fact for fact in state if fact[0] != key or fact[1] in _KINDS)
                        for state in states
                    }
        return states

    def mark(self, text: str, states: set[State], scope: _Scope) -> set[State]:
        what, *words = text.split()
        if what == "clean":
            return {state - {("", "dirty"), ("", "spared")} for state in states}
        if what == "knows":
            return {state | {(self.key(("name", words[0]), scope) or "?", words[1])} for state in states}
        kept = {self.key(("name", word), scope) or "?" for word in words}
        return {
            frozenset(fact for fact in state if fact[0] not in kept or not fact[1].startswith("gone"))
            | {(key, "kept") for key in kept}
            for state in states
        }

    def give(self, values: list[Node], states: set[State], scope: _Scope) -> set[State]:
        for value in values:
            states = self.value(value, states, scope)
            error = value == ("name", "refusal") or (
                value[0] == "invoke" and value[1][-1] == ("text", "error_reply")
            )
            if error and any(("", "dirty") in state for state in states):
                self.found.wrong.add("answers with an error after a write")
        return states

    def branch(self, node: Node, states: set[State], scope: _Scope) -> _Ways:
        ways = _Ways()
        for condition, body in node[1]:
            states = self.value(condition, states, scope)
            found = self.block(body, states, scope)
            ways.on |= found.on
            ways.out |= found.out
            ways.done |= found.done
        found = self.block(node[2], states, scope)
        return _Ways(ways.on | found.on, ways.out | found.out, ways.done | found.done)

    def loop(self, node: Node, states: set[State], scope: _Scope) -> _Ways:
        for value in node[2] if node[0] == "for" else [node[1]]:
            states = self.value(value, states, scope)
        body = node[-1]
        if node[0] == "for" and (rows := _listed(node[2])) is not None:
            return self.each(node[1][-1], rows, body, states, scope)
        ways, seen, now = _Ways(), set(states), set(states)
        while now:
            found = self.block(body, now, scope)
            ways.done |= found.done
            ways.out |= found.out
            again = self.value(node[1], found.on, scope) if node[0] == "while" else found.on
            now = again - seen
            seen |= now
        return _Ways(on=seen | ways.out, done=ways.done)

    def each(self, name: str, rows: list[Node], body: list[Node], states: set[State], scope: _Scope) -> _Ways:
        ways = _Ways(on=states)
        for row in rows:
            key = self.key(row, scope)
            inner = replace(scope, keys={**scope.keys, **({name: key} if key else {})})
            found = self.block(body, ways.on, inner)
            ways.on = found.on | found.out
            ways.done |= found.done
        return ways

    # Expressions ------------------------------------------------------------------------------------------------

    def key(self, node: Node, scope: _Scope) -> str | None:
        """The key that an expression stands for."""
        if node[0] == "name":
            return scope.keys.get(node[1])
        if node[0] == "index" and node[1] == ("name", "KEYS"):
            at = node[2]
            if at[0] == "value":
                return f"KEYS[{at[1]}]"
            if at == ("unary", "#", ("name", "KEYS")):
                return f"KEYS[{self.count}]"
            if at[0] == "binary" and at[1] == "-" and at[2][0] == "unary":
                return f"KEYS[{self.count - int(at[3][1])}]"
            return f"{at}?"
        return None

    def value(self, node: Node, states: set[State], scope: _Scope) -> set[State]:
        """What is known once an expression was looked at."""
        kind = node[0]
        if kind in {"and", "or"}:
            states = self.value(node[1], states, scope)
            return states | self.value(node[2], states, scope)
        if kind == "invoke":
            return self.invoke(node, states, scope)
        for part in node[1:]:
            for one in part if isinstance(part, list) else [part]:
                if isinstance(one, tuple) and kind != "lambda":
                    states = self.value(one, states, scope)
        return states

    def invoke(self, node: Node, states: set[State], scope: _Scope) -> set[State]:
        callee, arguments = node[1], node[2]
        for argument in arguments:
            states = self.value(argument, states, scope)
        if callee in (("name", "call"), ("index", ("name", "redis"), ("text", "call"))):
            return self.command(arguments, states, scope, guarded=False)
        if callee == ("index", ("name", "redis"), ("text", "pcall")):
            return self.command(arguments, states, scope, guarded=True)
        if callee[0] == "name" and callee[1] in scope.functions:
            names, body = scope.functions[callee[1]]
            keys = dict(scope.keys)
            for name, argument in zip(names, arguments, strict=False):
                keys.pop(name, None)
                if (key := self.key(argument, scope)) is not None:
                    keys[name] = key
            # Keys that a function turns to are turned to for all.
            inner = replace(scope, keys=keys)
            ways = self.block(body, states, inner)
            scope.keys.update({name: key for name, key in keys.items() if name not in names})
            return ways.on | ways.done
        return states

    def command(self, words: list[Node], states: set[State], scope: _Scope, *, guarded: bool) -> set[State]:
        name = words[0][1] if words[0][0] == "text" else "?"
        if name in _KEYLESS:
            return states
        if name not in _ANY_TYPE and name not in _TYPED:
            self.found.wrong.add(f"runs {words[0]}, of which nothing is known")
            return states
        rows = words[1:] if name in {"DEL", "EXISTS"} else words[1:2]
        keys = [self.key(row, scope) or f"{row}?" for row in rows]
        nothing = name in {"HDEL", "ZREM"} and words[2] == ("text", "")
        only_there = ("text", "XX") in words
        in_rows = any(word[0] == "invoke" and word[1] == ("name", "unpack") for word in words)
        gone = f"gone {id(words)}" if in_rows else "gone"
        step = _Step(name, tuple(keys), guarded=guarded, nothing=nothing, there=only_there, gone=gone)
        return {self.step(state, step) for state in states}

    def step(self, state: State, step: _Step) -> State:
        facts = set(state)
        dirty, name, kind = ("", "dirty") in state, step.name, _TYPED.get(step.name)
        for key in step.keys:
            kept = (key, "kept") in state
            if dirty and not step.guarded:
                self.look(state, step, key)
            if kind or name == "SET":
                facts.add((key, kind or "string"))
            if name in _FILLS and not step.there:
                facts = {fact for fact in facts if fact[0] != key or not fact[1].startswith("gone")}
                facts.add((key, "kept"))
            if name == "DEL" or (name in _TAKES and not step.nothing and not kept):
                facts.add((key, step.gone))
                facts.discard((key, "kept"))
        if name in _FREES:
            facts |= {("", "dirty")} | (set() if dirty else {("", "spared")})
        elif name in _FILLS and (dirty or not step.guarded):
            self.found.refused |= not dirty
            if ("", "spared") in state and not step.guarded:
                self.found.fills |= {key for key in step.keys if key != self.fence}
            facts.add(("", "dirty"))
        return frozenset(facts)

    def look(self, state: State, step: _Step, key: str) -> None:
        """Whether a command on a key can fail."""
        kind = _TYPED.get(step.name)
        if any(of == key and fact.startswith("gone") and fact != step.gone for of, fact in state) or (
            step.gone == "gone" and (key, "gone") in state
        ):
            self.found.wrong.add(f"{step.name} of {key}, which may be gone by then")
        if kind and (key, kind) not in state:
            self.found.wrong.add(f"{step.name} of {key}, of which nobody knew the type")


def _listed(over: list[Node]) -> list[Node] | None:
    """The items of ``ipairs({...})``."""
    one = over[0]
    if len(over) == 1 and one[0] == "invoke" and one[1] == ("name", "ipairs") and one[2][0][0] == "table":
        items: list[Node] = one[2][0][1]
        return items
    return None
