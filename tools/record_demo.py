"""Record `make demo` for the README: `python tools/record_demo.py` runs it and writes docs/images/demo.svg.

The lines are those of a real run; progress lines that say little are left out, and nothing else is changed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"
PROGRESS = re.compile(r"^ +w1 +\d+ +w2")
COLUMNS, LINE, LEFT, TOP = 92, 18, 16, 44
KINDS = (
    (PROGRESS, "d"),
    (re.compile(r" ok$|granted|exact"), "g"),
    (re.compile(r"^\d  |^Verdict"), "t"),
    (re.compile(r"^  !|killed|stopped|refuses"), "r"),
)


def chosen(text: str) -> list[str]:
    """The lines to show: of progress lines in a row, the first that differs and the last.

    Args:
        text: What the demo printed.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    kept: list[str] = []
    for number, line in enumerate(lines):
        if PROGRESS.match(line):
            after = lines[number + 1] if number + 1 < len(lines) else ""
            if PROGRESS.match(after) or line in kept:
                continue
        if line.strip() or (kept and kept[-1]):
            kept.append(line)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def svg(lines: list[str]) -> str:
    """A terminal with these lines.

    Args:
        lines: What it shows.
    """
    height = TOP + LINE * (len(lines) + 2)
    width = LEFT * 2 + round(COLUMNS * 8.43)
    rows: list[str] = []
    for number, line in enumerate(["$ make demo", *lines]):
        kind = next((name for pattern, name in KINDS if pattern.search(line)), "")
        marked = f' class="{kind}"' if kind else ""
        rows.append(f'<text x="{LEFT}" y="{TOP + LINE * number}"{marked}>{escape(line[:COLUMNS])}</text>')
    dots = "".join(
        f'<circle cx="{20 + 18 * at}" cy="16" r="5.5" fill="{colour}"/>'
        for at, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        "<title>make demo: workers sell a stock without and with pawlock</title>"
        "<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d6dde6;white-space:pre}"
        ".t{font-weight:700;fill:#fff}.r{fill:#ff8a80}.g{fill:#69d2a4}.d{fill:#8b97a5}</style>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#1b2029"/>{dots}\n'
        + "\n".join(rows)
        + "\n</svg>\n"
    )


def main() -> int:
    """Run the demo and draw it; its exit code if it failed."""
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--plain"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stdout + done.stderr)
        return done.returncode
    PICTURE.write_text(svg(chosen(done.stdout)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
