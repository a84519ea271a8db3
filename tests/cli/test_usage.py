"""Wrong arguments, help and completion."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

import pawlock as library
from tests.cli.conftest import PAWLOCK, ROOT, Pawlock, environment
from tests.support.command import call

VERBS = ("doctor", "force-release", "ls", "once", "run", "serve", "show", "top")
SERVER = ("--url", "gopher://x")
WRONG: list[Sequence[str]] = [
    ("no-such-verb",),
    ("--no-such-option", "ls"),
    ("run",),
    ("run", "job"),
    ("run", "job", "--"),
    ("run", "--", "true"),
    ("run", "job", "extra", "--", "true"),
    ("run", "--no-such-option", "job", "--", "true"),
    ("run", "-n", "-w", "3", "job", "--", "true"),
    ("run", "-w", "-1", "job", "--", "true"),
    ("run", "-w", "nan", "job", "--", "true"),
    ("run", "-E", "256", "job", "--", "true"),
    ("ls", "extra"),
    ("ls", "--sort", "colour"),
    ("ls", *SERVER),
    ("ls", "--namespace", "x" * 201),
    ("ls", "--namespace", "x", "--all-namespaces"),
    ("show",),
    ("show", ""),
    ("show", "x" * 300),
    ("show", "--waiters", "-1", "a"),
    ("top", "--interval", "-1"),
    ("top", "--interval", "0"),
    ("top", "--interval", "nan"),
    ("top", "-n", "0"),
    ("top", "--sort", "x"),
    ("top", "extra"),
    ("force-release",),
    ("force-release", "a"),
    ("force-release", "-y", "a"),
    ("force-release", "-y", "--reason", " ", "a"),
    ("force-release", "-y", "--reason", "x" * 501, "a"),
    ("once",),
    ("once", "a"),
    ("once", "a", "b", "--", "true"),
    ("once", "--keep", "0", "a", "--", "true"),
    ("once", "--keep", "1y", "a", "--", "true"),
    ("once", "-w", "-1", "a", "--", "true"),
    ("once", "-w", "nan", "a", "--", "true"),
    ("once", "-w", "a", "--", "true"),
    ("once", "--forget", "a", "--", "true"),
    ("once", "--forget"),
    ("run", "--elect", "a"),
    ("run", "--kill-after", "nan", "a", "--", "true"),
]
SEEN_WHILE_IT_RUNS: list[Sequence[str]] = [
    ("once", "--keep", "400d", "a", "--", "true"),
]


def test_wrong_usage_is_one_line_and_64(pawlock: Pawlock) -> None:
    for arguments in WRONG:
        code, out, err = pawlock.call(*arguments)
        assert (code, out) == (64, ""), arguments
        assert err.startswith("pawlock: "), arguments
        assert err.count("\n") == 1, (arguments, err)
    assert pawlock.server.command("DBSIZE") == 0


@pytest.mark.slow
def test_wrong_usage_that_the_library_sees(pawlock: Pawlock) -> None:
    for arguments in SEEN_WHILE_IT_RUNS:
        code, out, err = pawlock.run(*arguments)
        assert (code, out) == (64, ""), arguments
        assert err.startswith("pawlock: "), arguments
        assert err.count("\n") == 1, (arguments, err)
    assert pawlock.server.command("DBSIZE") == 0


def test_refused_by_the_server(pawlock: Pawlock) -> None:
    pawlock.server.command("SET", "{pawlock:x}:1:queue", "not a queue")
    for verb in (("show", "x"), ("force-release", "-y", "--reason", "r", "x")):
        code, out, err = pawlock.call(*verb)
        assert (code, out) == (69, "")
        assert "[WRONG_KEY]" in err
        assert "Fix: use another lock name or namespace." in err
        assert err.count("\n") == 1


def test_help_has_examples_and_exit_codes() -> None:
    more = {"run": ("PAWLOCK_FENCE", "--kill-after")}
    for verb in VERBS:
        code, out, err = call(verb, "--help")
        assert (code, err) == (0, "")
        for part in ("Examples:", "Exit codes:", f"pawlock {verb}", *more.get(verb, ())):
            assert part in out, verb


def test_the_overview_names_every_verb() -> None:
    code, said, err = call("--help")
    assert (code, err) == (0, "")
    assert all(f"  {verb} " in said for verb in (*VERBS, "server"))
    # Without arguments it is what was done wrong.
    assert call() == (64, "", said)
    assert call("--version") == (0, f"pawlock {library.__version__}\n", "")


def test_the_page_says_what_the_help_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import cli_reference; print(cli_reference.page(), end='')"],
        cwd=ROOT / "tools",
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    # Versions of click wrap in their own ways.
    assert page.split() == done.stdout.split(), "run: python tools/cli_reference.py"


def test_a_shell_completes_it() -> None:
    for words, wanted in (
        ("pawlock fo", "force-release"),
        ("pawlock ls --js", "--json"),
        ("pawlock run --on-lost w", "warn"),
    ):
        env = environment(
            COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1), _PAWLOCK_COMPLETE="bash_complete"
        )
        done = subprocess.run([*PAWLOCK], env=env, capture_output=True, text=True, check=False, timeout=20)
        assert done.stdout.split() == [f"plain,{wanted}"]


def test_a_verb_that_is_spelled_almost_right() -> None:
    for word, meant in (
        ("rn", "run"),
        ("force_release", "force-release"),
        ("release", "force-release"),
        ("list", "ls"),
    ):
        code, _, said = call(word, "x")
        assert code == 64
        assert f"No such command {word!r}: did you mean {meant}?" in said
    assert "did you mean" not in call("no-such-verb")[2]
