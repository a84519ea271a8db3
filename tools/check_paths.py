"""Check what no linter knows: that no file has a path of one machine."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = (".py", ".lua", ".sh", ".md", ".toml", ".yml", ".yaml", ".txt", ".cfg", ".ini", ".html", ".css", ".js")
# A path below one person's or one machine's folders means nothing to anybody else.
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:work|root|Users/\w+|home/\w+)/")


def files() -> list[Path]:
    """List what belongs to the project: what git tracks or would, or all files where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        found = [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.parts)]
    return sorted(
        path for path in found if path.is_file() and (path.suffix in TEXT or path.name == "Makefile")
    )


def problems(path: Path, text: str) -> Iterator[str]:
    """Yield each path of one machine in a file."""
    if not MACHINE_PATH.search(text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATH.search(line) and not line.startswith("#!"):
            yield f"{path.relative_to(ROOT)}:{number}: a path of one machine: {line.strip()}"


def main() -> int:
    """Print every problem; 1 when there is one."""
    found = [line for path in files() for line in problems(path, path.read_text(encoding="utf-8"))]
    print("\n".join(found) or "no file has a path of one machine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
