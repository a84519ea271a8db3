"""An operator's shell session, run as a script with the real command."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import Server

HERE = Path(__file__).resolve().parent


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on PATH")
def test_the_morning_of_an_operator(valkey: Server, tmp_path: Path) -> None:
    valkey.command("FLUSHALL")
    path = os.pathsep.join(filter(None, (str(HERE.parents[2] / "src"), os.environ.get("PYTHONPATH"))))
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PAWLOCK_URL": valkey.url,
        "PYTHONPATH": path,
    }
    session = subprocess.Popen(
        ["bash", str(HERE / "operator.sh")],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complained = session.communicate(timeout=110)
    finally:
        if session.poll() is None:
            os.killpg(session.pid, signal.SIGKILL)
            session.communicate()
    assert session.returncode == 0, complained
    assert said.strip() == "all is well"
