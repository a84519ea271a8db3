"""`python -m tests.simulator`: what it refuses, and that it ends when it is told to."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conformance.suite import main as conformance
from tests.simulator.command import main
from tests.simulator.drawing import draw, draw_masters

PATIENCE = 60.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--seeds 0", "0 is less than 1"),
        ("--seeds -3", "-3 is less than 1"),
        ("--seeds abc", "invalid"),
        ("--start -1", "-1 is less than 0"),
        ("--jobs 0", "0 is less than 1"),
        ("--masters --crowds", "not allowed with argument"),
        ("--see 3", "unrecognized arguments: --see 3"),
        ("--seed -7", "-7 is less than 0"),
        ("--replay /no/such/plan.json", "No such file"),
        (f"--replay {__file__}", "holds no plan"),
    ],
)
def test_what_can_only_be_a_mistake_is_refused(
    capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_seed_alone_is_told_as_its_plan_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--seed", "7"]) == 0
    alone = capsys.readouterr().out
    assert main(["--start", "7", "--trace"]) == 0
    assert capsys.readouterr().out == alone
    plan = tmp_path / "plan.json"
    plan.write_text(draw(7).to_json())
    assert main(["--replay", str(plan)]) == 0
    assert capsys.readouterr().out == alone
    assert main(["--seed", "8"]) == 0
    assert capsys.readouterr().out != alone


def test_seeds_of_masters_alone_have_several_masters(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(draw_masters(seed).topology.startswith("redlock") for seed in range(20))
    assert main(["--masters", "--seeds", "12"]) == 0
    assert "12 seeds" in capsys.readouterr().out


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_it_without_a_traceback(jobs: str) -> None:
    command = [sys.executable, "-u", "-m", "tests.simulator", "--seeds", "100000", "--jobs", jobs]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        # As a terminal does: all processes of the group.
        os.killpg(process.pid, signal.SIGINT)
        said, complained = process.communicate(timeout=PATIENCE)
    assert "seeds" in line
    assert (process.returncode, said.splitlines()[-1], complained) == (130, "stopped", "")
    # multiprocessing keeps one that goes when it sees that nobody is left.
    until = time.monotonic() + PATIENCE
    while alive(process.pid):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "the URL has no scheme"),
        pytest.param(["redis://127.0.0.1:1"], "127.0.0.1:1", marks=pytest.mark.slow),
    ],
)
def test_a_server_that_is_not_there_is_said_once(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    level = logging.getLogger("pawlock").level
    assert conformance(words) == 2
    assert logging.getLogger("pawlock").level == level
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
