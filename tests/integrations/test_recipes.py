"""The recipes of the documentation, as a user would run them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped] # it has no type marks

from tests.docs.test_docs import blocks, runnable
from tests.nightly.apps.rig import BIN, ROOT, rig
from tests.support.servers import Server

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs/integrations/index.md"


@pytest.fixture
def conftest() -> str:
    (code,) = [block.code for block in runnable(PAGE) if "testrun_uid" in block.code]
    return code


def test_workers_of_xdist_set_up_once(valkey: Server, tmp_path: Path, conftest: str) -> None:
    valkey.command("FLUSHALL")
    write = '                shared.write_text("set up by one worker")\n'
    assert write in conftest
    counted = write + '                (shared.parent / "count").open("a").write("x")\n'
    (tmp_path / "conftest.py").write_text(conftest.replace(write, counted))
    test = "import pytest, time\n@pytest.mark.parametrize('n', range(6))\n"
    test += "def test_it(database, n):\n    assert database.read_text().startswith('set up')\n    time.sleep(0.1)\n"
    (tmp_path / "test_it.py").write_text(test)
    with rig(tmp_path, {"PAWLOCK_URL": valkey.url}) as here:
        for variable in [name for name in here.environ if name.startswith("PYTEST_")]:
            del here.environ[variable]
        options = ("-q", "-n", "3", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "made"))
        done = here.run("pytest", *options, "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path))
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "made" / "count").read_text() == "x"


def manifests() -> list[str]:
    return [block.code for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "yaml"]


def test_the_command_that_names_the_day_runs_once_a_day(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    command = [str(word) for word in yaml.safe_load(manifests()[1])["command"]]
    day = "$(date -u +%F)"
    assert day in command[-1]
    (tmp_path / "report.sh").write_text("#!/bin/sh\necho reported\n")
    (tmp_path / "report.sh").chmod(0o755)
    with rig(tmp_path, {"PAWLOCK_URL": valkey.url}) as here:
        here.environ["PATH"] = os.pathsep.join((str(BIN), here.environ["PATH"]))

        def run(today: str) -> tuple[int, str, str]:
            # The day may not change while this runs.
            words = [*command[:-1], command[-1].replace(day, today).replace("./", f"{tmp_path}/")]
            done = subprocess.run(words, env=here.environ, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr

        ran = [run(today) for today in ("2026-11-23", "2026-11-23", "2026-11-24")]
    assert [(code, out) for code, out, _ in ran] == [(0, "reported\n"), (0, ""), (0, "reported\n")], ran


def test_the_command_of_the_cron_job_skips_what_runs_already(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    template = yaml.safe_load(manifests()[0])["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    command = [str(word) for word in container["command"]]
    assert command[-1] == "./report.sh"
    with rig(tmp_path, {"PAWLOCK_URL": valkey.url}) as here:
        ran = [here.run(*command[:-1], "echo", "reported") for _ in range(2)]
    assert [one.returncode for one in ran] == [0, 0], ran
    assert [one.stdout for one in ran] == ["reported\n", ""], "the second is within --min-hold"
