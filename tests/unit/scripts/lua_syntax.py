"""Reads the Lua of the scripts: as much of the language as they use, as tuples."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["Node", "parse"]

Node = tuple[Any, ...]
"""The kind of a piece of Lua, and its parts."""

_TOKEN = re.compile(
    r"(?P<skip>\s+|--(?!@)[^\n]*)|--@(?P<mark>\w+[^\n]*)|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<text>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")|(?P<op>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^#<>=(){}\[\];:,.])"
)
_WORDS = frozenset(
    [
        "and",
        "break",
        "do",
        "else",
        "elseif",
        "end",
        "false",
        "for",
        "function",
        "if",
        "in",
        "local",
        "nil",
        "not",
        "or",
        "repeat",
        "return",
        "then",
        "true",
        "until",
        "while",
    ]
)
_BINARY = frozenset({"==", "~=", "<", ">", "<=", ">=", "..", "+", "-", "*", "/", "%", "^"})


class _Reader:
    """The tokens of a script, one after the other."""

    def __init__(self, source: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(source):
            found = _TOKEN.match(source, at)
            if found is None:
                raise SyntaxError(f"no Lua that is known here: {source[at : at + 40]!r}")
            at, kind = found.end(), str(found.lastgroup)
            text = found[kind]
            if kind != "skip":
                self.tokens.append(("word" if text in _WORDS and kind == "name" else kind, text))
        self.tokens.append(("end", ""))
        self.at = 0

    def peek(self) -> str:
        kind, text = self.tokens[self.at]
        return text if kind in {"word", "op"} else kind

    def take(self) -> tuple[str, str]:
        self.at += 1
        return self.tokens[self.at - 1]

    def met(self, *texts: str) -> bool:
        if self.peek() in texts:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.met(text):
            raise SyntaxError(f"{text!r} expected, not {self.tokens[self.at : self.at + 8]}")

    def name(self) -> str:
        kind, text = self.take()
        if kind != "name":
            raise SyntaxError(f"a name expected, not {text!r}")
        return text

    # Statements -------------------------------------------------------------------------------------------------

    def block(self) -> list[Node]:
        made: list[Node] = []
        while self.peek() not in {"end", "else", "elseif", "until"}:
            if self.met(";"):
                continue
            made.append(self.statement())
        return made

    def statement(self) -> Node:
        kind, text = self.tokens[self.at]
        if kind == "mark":
            self.at += 1
            return ("mark", text)
        if kind == "word":
            known = {
                "local": self.local, "if": self.branch, "for": self.loop, "while": self.while_, "return": self.give,
                "function": self.function, "break": lambda: ("break",), "do": self.do,
            }  # fmt: skip
            self.at += 1
            return known[text]()
        first = self.suffixed()
        if self.peek() in {"=", ","}:
            targets = [first]
            while self.met(","):
                targets.append(self.suffixed())
            self.expect("=")
            return ("assign", targets, self.list_of())
        return ("call", first)

    def local(self) -> Node:
        if self.met("function"):
            name = self.name()
            return ("def", name, *self.rest_of_function())
        names = [self.name()]
        while self.met(","):
            names.append(self.name())
        return ("assign", [("name", name) for name in names], self.list_of() if self.met("=") else [])

    def function(self) -> Node:
        name = self.name()
        return ("def", name, *self.rest_of_function())

    def rest_of_function(self) -> tuple[list[str], list[Node]]:
        self.expect("(")
        names: list[str] = []
        while not self.met(")"):
            names.append(self.take()[1])
            self.met(",")
        body = self.block()
        self.finish()
        return names, body

    def finish(self) -> None:
        kind, text = self.take()
        if (kind, text) != ("word", "end"):
            raise SyntaxError(f"'end' expected, not {text!r}")

    def do(self) -> Node:
        body = self.block()
        self.finish()
        return ("if", [(("value", "true"), body)], [])

    def branch(self) -> Node:
        arms: list[tuple[Node, list[Node]]] = []
        other: list[Node] = []
        while True:
            condition = self.expression()
            self.expect("then")
            arms.append((condition, self.block()))
            if self.met("elseif"):
                continue
            if self.met("else"):
                other = self.block()
            self.finish()
            return ("if", arms, other)

    def loop(self) -> Node:
        names = [self.name()]
        while self.met(","):
            names.append(self.name())
        if not self.met("="):
            self.expect("in")
        over = self.list_of()
        self.expect("do")
        body = self.block()
        self.finish()
        return ("for", names, over, body)

    def while_(self) -> Node:
        condition = self.expression()
        self.expect("do")
        body = self.block()
        self.finish()
        return ("while", condition, body)

    def give(self) -> Node:
        ends = self.peek() in {"end", "else", "elseif", "until", ";"}
        return ("return", [] if ends else self.list_of())

    # Expressions ------------------------------------------------------------------------------------------------

    def list_of(self) -> list[Node]:
        made = [self.expression()]
        while self.met(","):
            made.append(self.expression())
        return made

    def expression(self) -> Node:
        left = self.both()
        while self.met("or"):
            left = ("or", left, self.both())
        return left

    def both(self) -> Node:
        left = self.plain()
        while self.met("and"):
            left = ("and", left, self.plain())
        return left

    def plain(self) -> Node:
        left = self.unary()
        while self.peek() in _BINARY:
            _, sign = self.take()
            left = ("binary", sign, left, self.unary())
        return left

    def unary(self) -> Node:
        for sign in ("not", "-", "#"):
            if self.met(sign):
                return ("unary", sign, self.unary())
        return self.suffixed()

    def suffixed(self) -> Node:
        found = self.primary()
        while True:
            if self.met("."):
                found = ("index", found, ("text", self.name()))
            elif self.met("["):
                found = ("index", found, self.expression())
                self.expect("]")
            elif self.met("("):
                arguments: list[Node] = []
                while not self.met(")"):
                    arguments.append(self.expression())
                    self.met(",")
                found = ("invoke", found, arguments)
            else:
                return found

    def primary(self) -> Node:
        kind, text = self.take()
        if kind == "name":
            return ("name", text)
        if kind == "text":
            return ("text", text[1:-1])
        if kind == "number" or text in {"nil", "true", "false", "..."}:
            return ("value", text)
        if text == "function":
            return ("lambda", *self.rest_of_function())
        if text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if text == "{":
            return self.table()
        raise SyntaxError(f"no expression begins with {text!r}")

    def table(self) -> Node:
        items: list[Node] = []
        while not self.met("}"):
            if self.tokens[self.at][0] == "name" and self.tokens[self.at + 1][1] == "=":
                self.at += 2
            elif self.met("["):
                self.expression()
                self.expect("]")
                self.expect("=")
            items.append(self.expression())
            self.met(",")
        return ("table", items)


def parse(source: str) -> list[Node]:
    """The statements of a script."""
    reader = _Reader(source)
    found = reader.block()
    if reader.tokens[reader.at][0] != "end":
        raise SyntaxError(f"what is {reader.tokens[reader.at : reader.at + 8]}?")
    return found
