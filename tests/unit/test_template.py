"""Names with fields: what is one, what fills it, and what a name without any stands for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pawlock
from pawlock._template import Template, escape, plain
from tests.support.refusal import case, refused

TEXT = st.text(alphabet="ab{}.[]!:0é", max_size=14)


@dataclass
class Order:
    id: int
    rows: tuple[str, ...] = ("first",)


class Nameless:
    """Has no text of its own."""


@given(TEXT)
def test_an_escaped_text_stands_for_itself(text: str) -> None:
    assert plain(escape(text)) == text


@given(TEXT)
def test_a_text_has_fields_or_stands_for_one_name(text: str) -> None:
    literal = plain(text)
    if literal is None:
        assert "{" in text
        assert "}" in text
    else:
        assert len(literal) <= len(text)
        assert literal.replace("{", "").replace("}", "") == text.replace("{", "").replace("}", "")


@given(TEXT, st.text(max_size=5))
def test_what_python_formats_is_formatted_alike(text: str, value: str) -> None:
    try:
        expected = text.format(a=value, b=value)
    except (ValueError, LookupError, AttributeError, TypeError):
        return
    if plain(text) is None:
        assert Template(text).fill({"a": value, "b": value}) == expected
    else:
        assert plain(text) == expected


def test_filling() -> None:
    cases: list[tuple[str, str]] = [
        ("a:{x}", "a:7"),
        ("{x}{x}", "77"),
        ("{{{x}}}", "{7}"),
        ("{order.id}/{order.rows[0]}", "3/first"),
        ("{day:%Y-%m}", "2026-03"),
        ("{x!r:>3}", "  7"),
        ("{ {x} }", "{ 7 }"),
        ("é{größe}", "é5"),
        ("{table[a]}", "b"),
    ]
    for text, name in cases:
        with case(text, name):
            arguments = {"x": 7, "order": Order(3), "day": date(2026, 3, 1), "größe": 5, "table": {"a": "b"}}
            assert plain(text) is None
            assert Template(text).fill(arguments) == name


def test_what_cannot_be_filled() -> None:
    cases: list[tuple[str, str]] = [
        ("{y}", "KeyError 'y'"),
        ("{order.number}", "AttributeError"),
        ("{order.rows[3]}", "IndexError"),
        ("{order[3]}", "TypeError"),
        ("{x:%Q}", "ValueError"),
        ("{nameless}", "a Nameless has no usable text"),
    ]
    for text, word in cases:
        with case(text, word):
            refused(lambda: Template(text).fill({"x": 7, "order": Order(3), "nameless": Nameless()}), word)


def test_a_field_needs_a_name() -> None:
    for text in ("{}", "{0}", "{7up}", "a{:x}"):
        assert plain(text) is None
        with pytest.raises(pawlock.ConfigurationError, match="not an argument name"):
            Template(text)
