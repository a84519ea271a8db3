"""From names to keys: no name reaches into another's, whatever it is made of."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pawlock
from pawlock.core.names import MAX_NAME_BYTES, check_namespace, helper_key, key_of, wake_prefix
from tests.support.refusal import case

TRICKY = st.text(alphabet="ab:%{}27BD5C\n\0 é\u2028é", max_size=12)
NAMES = st.one_of(TRICKY, st.text(max_size=30)).filter(lambda text: 0 < _size(text) <= MAX_NAME_BYTES)
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
ANY_NAMESPACES = st.one_of(TRICKY, st.text(max_size=20)).filter(
    lambda text: 0 < _size(text) <= MAX_NAME_BYTES
)
NAMESPACES = ANY_NAMESPACES.filter(lambda text: text == text.strip() and not UNSEEN.search(text))
SUFFIXES = ["fence", "1:queue", "1:tickets", "1:dead:token@h:1/main"]


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 10_000


def slot_part(key: str) -> str:
    """What a cluster hashes of a key, after the specification: the first braces, unless nothing is in them."""
    start = key.find("{")
    if start < 0:
        return key
    end = key.find("}", start)
    return key[start + 1 : end] if end > start + 1 else key


@given(NAMESPACES, NAMES, NAMESPACES, NAMES)
def test_escaping_cannot_collide(space: str, name: str, other_space: str, other: str) -> None:
    mine = key_of(check_namespace(space), name)
    theirs = key_of(check_namespace(other_space), other)
    assert (mine == theirs) == ((space, name) == (other_space, other))


@given(NAMESPACES, NAMES, NAMES, st.sampled_from(SUFFIXES), st.sampled_from(SUFFIXES))
def test_helper_keys_belong_to_one_name(
    space: str, name: str, other: str, suffix: str, other_suffix: str
) -> None:
    namespace = check_namespace(space)
    key, other_key = key_of(namespace, name), key_of(namespace, other)
    helper = helper_key(key, suffix)
    assert slot_part(helper) == slot_part(key) == key, "all keys of a name share its slot"
    assert helper != other_key, "no name is another's helper"
    assert (helper == helper_key(other_key, other_suffix)) == ((name, suffix) == (other, other_suffix))


@given(ANY_NAMESPACES)
def test_a_namespace_has_nothing_that_nobody_sees(space: str) -> None:
    if space == space.strip() and not UNSEEN.search(space):
        check_namespace(space)
        return
    with pytest.raises(pawlock.ConfigurationError, match="remove it"):
        check_namespace(space)


def test_the_variable_may_come_from_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with the ends of lines that Windows writes, or blanks: the same locks as without."""
    for written in ("billing\r", "billing\r\n", " billing", "billing ", "\tbilling\n"):
        monkeypatch.setenv("PAWLOCK_NAMESPACE", written)
        for connect in (pawlock.connect, pawlock.connect_async):
            with case(written):
                named = connect("redis://127.0.0.1:1", namespace="billing")
                assert repr(connect("redis://127.0.0.1:1")) == repr(named)
                with pytest.raises(pawlock.ConfigurationError, match="remove it"):
                    connect("redis://127.0.0.1:1", namespace=written)


def test_a_variable_that_nobody_can_mean_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for written in (" ", "\r\n", "a\rb", "a\x00b", "a\x1b[0m"):
        with case(written):
            if "\x00" not in written:  # no environment has it
                monkeypatch.setenv("PAWLOCK_NAMESPACE", written)
                with pytest.raises(pawlock.ConfigurationError, match=r"PAWLOCK_NAMESPACE .* remove it"):
                    pawlock.connect("redis://127.0.0.1:1")
            with pytest.raises(pawlock.ConfigurationError, match="remove it"):
                pawlock.connect("redis://127.0.0.1:1", namespace=written)


@given(NAMESPACES, NAMES)
def test_a_key_is_harmless(space: str, name: str) -> None:
    key = key_of(check_namespace(space), name)
    assert not re.search("[{}\x00-\x1f\x7f-\x9f\u2028\u2029]", key)
    assert key.count(":") == name.count(":") + 1, "a colon in a namespace is escaped"


@given(NAMES)
def test_what_needs_no_escaping_is_left_as_it_is(name: str) -> None:
    plain = not re.search("[%{}\x00-\x1f\x7f-\x9f\u2028\u2029]", name)
    assert (key_of("pawlock", name) == f"pawlock:{name}") == plain


@given(NAMES)
def test_without_a_namespace_the_name_is_the_key(name: str) -> None:
    begin, end = name.find("{"), name.find("}")
    tagged = name.count("{") == name.count("}") == 1 and end > begin + 1
    bare = name.replace("{", "").replace("}", "") if tagged else name
    if re.search("[%{}\x00-\x1f\x7f-\x9f\u2028\u2029]", bare):
        with pytest.raises(pawlock.ConfigurationError, match="needs escaping"):
            key_of("", name)
    else:
        assert key_of("", name) == name


TAGGED = st.tuples(
    st.text("ab:", max_size=5), st.text("ab:", min_size=1, max_size=5), st.text("ab:", max_size=5)
).map(lambda parts: f"{parts[0]}{{{parts[1]}}}{parts[2]}")
BARE = st.one_of(TAGGED, st.text("ab:", min_size=1, max_size=9))


@given(BARE, BARE, st.sampled_from(SUFFIXES), st.sampled_from(SUFFIXES))
def test_helper_keys_without_a_namespace(name: str, other: str, suffix: str, other_suffix: str) -> None:
    """Each in the slot of its name, none another's, and none a name itself."""
    key, other_key = key_of("", name), key_of("", other)
    helper = helper_key(key, suffix)
    assert slot_part(helper) == slot_part(key)
    assert (helper == helper_key(other_key, other_suffix)) == ((name, suffix) == (other, other_suffix))
    assert helper != other_key
    with pytest.raises(pawlock.ConfigurationError, match="helper key of another lock"):
        key_of("", helper)


@given(st.text("a{}", min_size=1, max_size=9), st.sampled_from(SUFFIXES))
def test_the_helper_keys_of_a_key_that_others_share(key: str, suffix: str) -> None:
    """In the slot of the key, whatever its braces; there is none for a closing brace outside of a tag."""
    helper = helper_key(pawlock.Key(key).key, suffix)
    assert helper.startswith((key, "{" + key))
    assert slot_part(helper) == slot_part(key) or ("}" in key and slot_part(key) == key)


def test_braces_that_make_no_tag_are_refused_without_a_namespace() -> None:
    for name in ("a{b", "b}", "{}", "a{}b", "}{", "{a}{b}", "{{a}}", "{a", "a{b}%"):
        with case(name), pytest.raises(pawlock.ConfigurationError, match="needs escaping"):
            key_of("", name)


@given(NAMESPACES, NAMESPACES)
def test_namespaces_do_not_share_a_channel(space: str, other: str) -> None:
    mine, theirs = wake_prefix(check_namespace(space)), wake_prefix(check_namespace(other))
    assert (mine == theirs) == (space == other)
    assert not re.search(r"[*?\[\] ]", mine), "nor could it be a pattern"


def test_keys() -> None:
    cases: list[tuple[str, str]] = [
        ("order:42", "pawlock:order:42"),
        ("a{b}", "pawlock:a%7Bb%7D"),
        ("100%", "pawlock:100%25"),
        ("\n", "pawlock:%0A"),
        ("\x85", "pawlock:%C2%85"),
    ]
    for name, key in cases:
        with case(name, key):
            assert key_of("pawlock", name) == key


def test_the_longest_name() -> None:
    assert key_of("pawlock", "x" * 200)
    assert key_of("pawlock", "é" * 100)
    for long in ("x" * 201, "é" * 101, "x" * 10**7):
        with pytest.raises(pawlock.ConfigurationError, match="at most 200 bytes"):
            key_of("pawlock", long)
