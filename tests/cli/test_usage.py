"""Wrong arguments, help, completion, and what `pawlock --help` may cost."""

import resource
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.cli.conftest import PAWLOCK, ROOT, Pawlock, environment

VERBS = (
    "acquire",
    "audit",
    "bench",
    "elect",
    "force-release",
    "ls",
    "once",
    "release",
    "renew",
    "run",
    "show",
    "top",
    "watch",
)
SERVER = ("--url", "gopher://x")
WRONG: list[Sequence[str]] = [
    ("ls", "extra"),
    ("ls", "--sort", "colour"),
    ("ls", *SERVER),
    ("ls", "--namespace", "x" * 201),
    ("show",),
    ("show", ""),
    ("show", "x" * 300),
    ("show", "--waiters", "-1", "a"),
    ("watch",),
    ("watch", "--interval", "0", "a"),
    ("watch", "--interval", "nan", "a"),
    ("watch", "-n", "0", "a"),
    ("top", "--interval", "-1"),
    ("top", "--sort", "x"),
    ("top", "extra"),
    ("acquire",),
    ("acquire", "-n", "-w", "1", "a"),
    ("acquire", "-w", "-1", "a"),
    ("acquire", "--ttl", "0.001", "a"),
    ("acquire", "--ttl", "inf", "a"),
    ("acquire", "-t", "--json", "a"),
    ("acquire", "x" * 300),
    ("release",),
    ("release", "no-ticket"),
    ("release", "pawlock1.AAAA"),
    ("release", "a", "b"),
    ("renew",),
    ("renew", "no-ticket"),
    ("renew", "pawlock1.AAAA"),
    ("renew", "--ttl", "-1", "a"),
    ("renew", "a", "b"),
    ("force-release",),
    ("force-release", "a"),
    ("force-release", "-y", "a"),
    ("force-release", "-y", "--reason", " ", "a"),
    ("force-release", "-y", "--reason", "x" * 501, "a"),
    ("audit", "--limit", "0"),
    ("bench", "--seconds", "-1"),
    ("elect",),
    ("elect", "a"),
    ("elect", "a", "b", "--", "true"),
    ("elect", "-w", "nan", "a", "--", "true"),
    ("elect", "--identity", "a b", "a", "--", "true"),
    ("once",),
    ("once", "a"),
    ("once", "a", "b", "--", "true"),
    ("once", "--keep", "0", "a", "--", "true"),
    ("once", "--keep", "1y", "a", "--", "true"),
    ("once", "--keep", "400d", "a", "--", "true"),
    ("once", "-w", "-1", "a", "--", "true"),
    ("once", "-w", "nan", "a", "--", "true"),
    ("once", "-w", "a", "--", "true"),
    ("once", "--forget", "a", "--", "true"),
    ("once", "--forget"),
    ("completion",),
    ("completion", "tcsh"),
]


@pytest.mark.parametrize("arguments", WRONG, ids=lambda one: " ".join(one)[:40])
def test_wrong_usage_is_one_line_and_64(pawlock: Pawlock, arguments: Sequence[str]) -> None:
    code, out, err = pawlock.run(*arguments)
    assert (code, out) == (64, "")
    assert err.startswith("pawlock: ")
    assert err.count("\n") == 1
    assert pawlock.server.command("DBSIZE") == 0


def test_refused_by_the_server(pawlock: Pawlock) -> None:
    pawlock.server.command("SET", "{pawlock:x}:1:queue", "not a queue")
    for verb in (("show", "x"), ("force-release", "-y", "--reason", "r", "x")):
        code, out, err = pawlock.run(*verb)
        assert (code, out) == (69, "")
        assert "[WRONG_KEY]" in err
        assert "Fix: use another lock name or namespace." in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_and_exit_codes(pawlock: Pawlock, verb: str) -> None:
    code, out, err = pawlock.run(verb, "--help")
    assert (code, err) == (0, "")
    assert "Examples:" in out
    assert "Exit codes:" in out
    assert f"pawlock {verb}" in out


def test_the_page_says_what_the_help_says(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(pawlock: Pawlock, shell: str) -> None:
    code, out, err = pawlock.run("completion", shell)
    assert (code, err) == (0, "")
    assert "_PAWLOCK_COMPLETE" in out
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=out, text=True, check=True, timeout=10)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("pawlock fo", "force-release"),
        ("pawlock ls --js", "--json"),
        ("pawlock top --sort con", "contention"),
    ],
)
def test_completion_completes(words: str, wanted: str) -> None:
    env = environment(
        COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1), _PAWLOCK_COMPLETE="bash_complete"
    )
    done = subprocess.run([*PAWLOCK], env=env, capture_output=True, text=True, check=False, timeout=20)
    assert done.stdout.split() == [f"plain,{wanted}"]


def imported(*arguments: str, **more: str) -> set[str]:
    """The modules that a command imports."""
    env = environment(PYTHONPROFILEIMPORTTIME="1", **more)
    done = subprocess.run(
        [*PAWLOCK, *arguments], env=env, capture_output=True, text=True, check=True, timeout=30
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_help_imports_nothing_heavy() -> None:
    found = imported("--help")
    assert found.isdisjoint(
        {"asyncio", "click", "json", "redis", "hiredis", "rich", "socket", "pawlock.core", "pawlock.sync"}
    )
    assert {name for name in found if name.startswith("pawlock.cli.")} == {"pawlock.cli.verbs"}


def cost(*arguments: str) -> float:
    """Seconds of processor time of the cheapest of several runs."""
    times: list[float] = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], env=environment(), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_help_costs_little() -> None:
    assert cost("-m", "pawlock", "--help") <= 4 * cost("-c", "pass")


def test_rich_is_for_the_display_alone(pawlock: Pawlock) -> None:
    for verb in ("ls", "top"):
        assert "rich" not in imported(verb, PAWLOCK_URL=pawlock.server.url)
    assert "redis" not in imported("completion", "zsh")


def test_both_ways_to_the_overview_say_the_same(pawlock: Pawlock) -> None:
    code, short, _ = pawlock.run("--help")
    assert code == 0
    assert all(f"  {verb} " in short for verb in VERBS)
    assert pawlock.run()[2] == short
