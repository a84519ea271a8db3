"""Run every static check, one line each; say what was wrong only where something was.

A check that cannot run on this machine is skipped with its reason. The reasons are left in `.make/skips`, and
the test run takes them into its own list, so that a skip is never lost among the lines above.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPS = ROOT / ".make" / "skips"
BIN = Path(sys.executable).parent
# Type completeness is asked of an installed package; pyright does not follow an editable install by itself.
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
CODE = [
    name
    for name in ("src", "tests", "interop", "tools", "demo", "benchmarks", "examples")
    if (ROOT / name).is_dir()
]
PYRIGHT_START = 240.0
"""Seconds to wait for pyright's first start, which may fetch the program that its wheel only wraps."""

PYRIGHT = ("pyright", "--pythonpath", sys.executable)


@dataclass(frozen=True, slots=True)
class Check:
    """One tool, run as one command.

    Attributes:
        name: How the line begins.
        command: The command, without the folder of the environment.
        needs: The program that must be able to start, or "" when it comes with the environment for sure.
    """

    name: str
    command: Sequence[str]
    needs: str = ""


CHECKS = (
    Check("ruff check", ("ruff", "check", "--quiet", *CODE)),
    Check("ruff format", ("ruff", "format", "--check", "--quiet", *CODE)),
    Check("pyright", (*PYRIGHT, "--warnings"), needs="pyright"),
    Check("mypy --strict", ("mypy", "--no-error-summary", *CODE)),
    # Also leaves the compiled tests for the workers of a run, each of which would else compile all of them.
    Check("tests collect", ("pytest", "--collect-only", "-qqq", "-p", "no:cacheprovider")),
    Check("types are complete", ("python", "tools/check_types.py", sys.executable), needs="pyright"),
    Check("sync from aio", ("python", "tools/make_sync.py", "--check")),
    Check("layers", ("lint-imports", "--no-cache")),
    Check("paths", ("python", "tools/check_paths.py")),
)


def cannot_start(program: str) -> str:
    """Say why a program cannot start on this machine; "" when it can."""
    try:
        done = subprocess.run(
            [BIN / program, "--version"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PYRIGHT_START,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} cannot start: {error}"
    if done.returncode == 0:
        return ""
    said = (done.stderr or done.stdout).strip().splitlines()
    return f"{program} cannot start: {said[-1] if said else 'it said nothing'}"


def run(check: Check) -> tuple[bool, str]:
    """Run one check; say whether it passed, and its line, followed by what it said when it failed."""
    started = time.monotonic()
    done = subprocess.run(
        [BIN / check.command[0], *check.command[1:]],
        cwd=ROOT,
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=False,
    )
    passed = done.returncode == 0
    line = f"  {check.name:<22} {'ok' if passed else 'FAILED':<7} {time.monotonic() - started:5.1f} s"
    return passed, line if passed else f"{line}\n{done.stdout}{done.stderr}"


def main() -> int:
    """Run all checks, also those after a failing one, so that one run tells everything."""
    print("lint", flush=True)
    reasons = {need: cannot_start(need) for need in {check.needs for check in CHECKS if check.needs}}
    able = [check for check in CHECKS if not reasons.get(check.needs)]
    skipped = [f"lint, {check.name}: {reasons[check.needs]}" for check in CHECKS if check not in able]
    failed: list[str] = []
    # The two type checkers take nearly all of the time, one core each.
    with ThreadPoolExecutor(2) as pool:
        for check, (passed, line) in zip(able, pool.map(run, able), strict=True):
            print(line, flush=True)
            if not passed:
                failed.append(check.name)
    for reason in skipped:
        print(f"  skipped ({reason})", flush=True)
    SKIPS.parent.mkdir(exist_ok=True)
    SKIPS.write_text("".join(line + "\n" for line in skipped), encoding="utf-8")
    if failed:
        print(f"lint: {len(failed)} of {len(CHECKS)} checks failed: {', '.join(failed)}")
        return 1
    print(f"lint: {len(CHECKS) - len(skipped)} checks passed, {len(skipped)} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
