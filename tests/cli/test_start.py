"""What a command loads before it works, counted; what the cheapest costs; and that a test in its process shows the same."""

import json
import os
import resource
import subprocess
import sys

import pytest

from tests.cli.conftest import Pawlock, environment
from tests.support.command import call

SHOW = """
import json, sys
sys.argv = ["pawlock", *json.loads(sys.argv[1])]
import atexit
atexit.register(lambda: sys.stderr.write("\\nLOADED " + json.dumps(sorted(sys.modules))))
from pawlock.__main__ import main
sys.exit(main())
"""

HEAVY = (
    "rich", "pawlock.aio", "pawlock.testing", "pawlock.service", "pawlock.metrics", "pawlock.fencing", "pawlock.runtimes.aio",
    "pawlock.runtimes.cluster", "pawlock.runtimes.sentinel", "pawlock.redlock.requests",
    "pawlock.redlock.tasks", "pawlock.redlock.threads", "sqlalchemy", "prometheus_client", "pytest",
)  # fmt: skip
"""What no command of one server needs, and what takes long to load."""


def loaded(*arguments: str, **variables: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, json.dumps(arguments)],
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = done.stderr.rpartition("\nLOADED ")[2]
    assert found.startswith("["), done.stderr
    return set(json.loads(found))


def own(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "pawlock"}


def test_help_loads_next_to_nothing() -> None:
    modules = loaded("--help")
    assert own(modules) == {"pawlock", "pawlock.__main__", "pawlock.cli", "pawlock.cli.verbs"}
    assert not modules & {"click", "redis", "hiredis", "asyncio", "socket"}
    plain = subprocess.run(
        [sys.executable, "-c", "import sys, json, logging, atexit; print(len(sys.modules))"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert len(modules) < int(plain.stdout) + 16


def test_the_help_of_a_verb_needs_no_client() -> None:
    assert not loaded("run", "--help") & {"redis", "asyncio", "pawlock.sync", "pawlock.core.engine"}


@pytest.mark.skipif(os.name != "posix", reason="needs process groups and signals")
def test_a_command_loads_what_one_server_needs(pawlock: Pawlock) -> None:
    for arguments in (["run", "-n", "job", "--", "true"], ["top", "-n", "1"]):
        modules = loaded(*arguments, PAWLOCK_URL=pawlock.server.url)
        assert "pawlock.sync.client" in modules
        heavy = {name for name in modules if any(name == one or name.startswith(f"{one}.") for one in HEAVY)}
        assert not heavy
        # Each layer of the core is a package, and counts.
        assert len(own(modules)) < 180, "each costs a millisecond: load it where it is needed"


def cost(*arguments: str) -> float:
    """Seconds of processor time of the cheapest of several runs."""
    times: list[float] = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], env=environment(), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_help_costs_little() -> None:
    assert cost("-m", "pawlock", "--help") <= 4 * cost("-c", "pass")


def test_a_process_of_its_own_says_the_same(pawlock: Pawlock) -> None:
    """What most of these tests run in their own process, a user gets: code, output, errors."""
    url = {"PAWLOCK_URL": pawlock.server.url}
    for words in (["--help"], ["--version"], [], ["ls", "extra"], ["show", "job"]):
        assert pawlock.run(*words) == call(*words, env=environment(**url)), words
