"""What the page of the service says that nobody can do: each line has a test, and the test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/serve.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("### What a client can do to others")[2].partition("\n## ")[0]
SECURITY, INTRUDER = "tests/service/test_security.py", "tests/service/test_intruder.py"
OPERATE, PAGES = "tests/service/test_operate.py", "tests/service/test_page.py"

TESTS = {
    "learn anything except": [(SECURITY, "test_without_a_known_token_nothing_is_told")],
    "learn the address": [(OPERATE, "test_who_has_no_token_is_not_told_where_the_server_is")],
    "release, renew, adopt": [
        (INTRUDER, "test_whoever_did_not_acquire_it_cannot_end_it"),
        ("tests/unit/scripts/test_guessable.py", "test_no_script_takes_what_can_be_guessed_for_a_token"),
    ],
    "re-enter a lock": [
        (
            "tests/contract/locks/test_service.py",
            "test_nothing_that_is_shown_of_an_identifier_lets_anybody_in",
        ),
    ],
    "hold longer than an hour": [(INTRUDER, "test_whoever_did_not_acquire_it_cannot_end_it")],
    "use a token of a lease": [
        (SECURITY, "test_a_token_may_do_what_its_roles_say_in_its_namespaces_alone"),
        (SECURITY, "test_tricks_with_paths"),
        (OPERATE, "test_only_a_star_has_a_meaning_in_a_namespace_of_a_token"),
    ],
    "lock a key": [
        ("tests/service/test_keys.py", "test_a_token_locks_only_the_keys_that_it_lists"),
        (SECURITY, "test_a_name_cannot_reach_a_key_of_another"),
    ],
    "ask more often": [(SECURITY, "test_a_client_has_a_rate")],
    "exhaust the memory of an instance with long names": [
        (SECURITY, "test_names_of_any_length_leave_its_memory_flat"),
    ],
    "exhaust the memory of an instance with event": [
        ("tests/service/test_watch.py", "test_what_waits_for_a_reader_of_events_is_the_latest_picture_alone"),
    ],
    "continue an event stream": [
        ("tests/service/test_token_ends.py", "test_streams_and_waits_end_with_their_token"),
    ],
    "leave a lock held by nobody": [
        (
            "tests/service/test_gone.py",
            "test_a_waiter_that_goes_away_as_its_grant_comes_leaves_the_name_free",
        ),
    ],
    "make a lock name look": [
        (PAGES, "test_the_oldest_comes_first_and_names_are_read_by_themselves"),
        (PAGES, "test_the_dialog_names_a_lock_and_takes_that_one_away"),
    ],
}
"""How each line begins, and the tests that show it."""


def test_every_line_has_its_test() -> None:
    lines = re.findall(r"^- (.+)$", SECTION, re.MULTILINE)
    assert len(lines) == len(TESTS)
    assert [line for line, begins in zip(lines, TESTS, strict=True) if not line.startswith(begins)] == []


def test_each_test_is_there() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for path, name in (one for tests in TESTS.values() for one in tests):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in [one.name for one in tree.body if isinstance(one, functions)], f"{path}::{name}"
