"""Put other libraries' locks, and pawlock's, under the fault rows: `python tools/peer_rows.py` writes the table anew.

Each row runs in a process of its own on a server of its own, a second time where it failed: what fails by a busy
machine is not to be held against anybody. Results go to docs/reference/peers.md.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.nightly.peers.locks import CONTENDERS, version  # noqa: E402 - the checkout has to be on the path first
from tests.nightly.peers.rows import ROWS  # noqa: E402
from tools import fault_rows  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "peers.md"
STORED = ROOT / ".make" / "peers.json"
HEAD = """# Other locks under the same faults

The locks of other libraries, used as their documentation shows, and pawlock's, under those [faults](faults.md) that any
lock can meet. pawlock's tests were written for these faults, so its column says little more than that they pass. The other
columns show which faults to consider.

Each row runs on a server of its own, behind a proxy that loses, duplicates or delays exactly the message in question. A
row that fails is run a second time. "–": the library does not offer what the row tests. `tools/peer_rows.py` writes
this page, here with {versions}; `tests/nightly/peers/rows.py` has the code of each row.
"""


def outcome(row: int, label: str) -> dict[str, str]:
    """Run a row for a lock, twice if it fails."""
    found: dict[str, str] = {}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "tests.nightly.peers.rows", str(row), label],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT / "src")])},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        lines = done.stdout.strip().splitlines()
        text = f"it ended with {done.returncode}: {done.stderr[-80:]}"
        found = json.loads(lines[-1]) if lines else {"outcome": "fails", "why": text}
        if found["outcome"] != "fails":
            break
    return found


def page(results: dict[int, dict[str, dict[str, str]]]) -> str:
    """Write the page.

    Args:
        results: By row and library, what came of it and why.
    """
    versions = ", ".join(f"{label} {version(label)}" for label in CONTENDERS if label != "pawlock")
    lines = [HEAD.strip().format(versions=versions), ""]
    lines += [
        f"| Row | What goes wrong | {' | '.join(CONTENDERS)} |",
        f"| --- | --- |{' --- |' * len(CONTENDERS)}",
    ]
    for row, found in sorted(results.items()):
        cells = " | ".join(_cell(found[label]) for label in CONTENDERS)
        lines.append(f"| {row} | {fault_rows.ROWS[row]} | {cells} |")
    counts = {
        label: (
            sum(found[label]["outcome"] == "survived" for found in results.values()),
            sum(found[label]["outcome"] != "n/a" for found in results.values()),
        )
        for label in CONTENDERS
    }
    lines.append(f"| | **survived** | {' | '.join(f'**{a} of {b}**' for a, b in counts.values())} |")
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, str]) -> str:
    if found["outcome"] == "survived":
        return "yes"
    why = found["why"].replace("|", "\\|")
    return f"– ({why})" if found["outcome"] == "n/a" else f"**no**: {why}"


def main() -> int:
    """Run all, or the rows that are given as arguments; the page is written when every row is known."""
    wanted = [int(word) for word in sys.argv[1:]] or sorted(ROWS)
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() and sys.argv[1:] else {}
    results: dict[int, dict[str, dict[str, str]]] = {int(row): found for row, found in stored.items()}
    for row in wanted:
        results[row] = {label: outcome(row, label) for label in CONTENDERS}
        print(
            row,
            {label: found["outcome"] + " " + found["why"] for label, found in results[row].items()},
            flush=True,
        )
    STORED.parent.mkdir(exist_ok=True)
    STORED.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if set(results) == {*ROWS}:
        PAGE.write_text(page(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
