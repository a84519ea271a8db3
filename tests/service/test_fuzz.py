"""schemathesis against the whole service, by its own description: nothing breaks it, and nothing is undescribed."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.rig import Instance, Tokens

_WANTED = "schemathesis==4.32.5"
_ROOT = Path(__file__).resolve().parents[2]
_CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,missing_required_header,ignored_auth"
)


_IMPATIENT = """
import runpy, sys
from pawlock.service import requests
requests.MOST_WAIT = 0.05
sys.argv = sys.argv[3:]
runpy.run_module("pawlock", run_name="__main__")
"""


@pytest.fixture(scope="module")
def schemathesis() -> str:
    """The program, in a place of its own: as a part of this one it would be a plugin of every test."""
    found = shutil.which("schemathesis")
    if found is not None:
        return found
    home = _ROOT / ".make" / "schemathesis"
    program = home / "bin" / "schemathesis"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
        command = [str(home / "bin" / "pip"), "install", "-q", _WANTED]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        if done.returncode:
            pytest.skip("schemathesis could not be installed: no package index")
    return str(program)


@pytest.mark.slow
def test_no_request_that_the_description_allows_or_forbids_breaks_it(
    schemathesis: str, serve: Callable[..., Instance], tokens: Tokens, tmp_path: Path
) -> None:
    secret = tokens.add("fuzz", roles=["admin"], namespaces=["*"], keys=["*"], rate=0)
    service = serve(before=[sys.executable, "-c", _IMPATIENT])
    command = [
        schemathesis, "run", f"{service.address}/openapi.json", "-H", f"Authorization: Bearer {secret}",
        # A stream that never ends.
        "--exclude-path-regex", "events$", "--checks", _CHECKS, "--max-time", "30", "--continue-on-failure",
        "--no-color", "--generation-database", "none",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "Tested: " in done.stdout
    assert service.process.poll() is None
    service.end()
    assert b"Traceback" not in service.said
