"""Write the table of primitives, topologies and servers from a run of the conformance suite.

`python tools/conformance_table.py [--missing] [SERVER …]` carries out every check in every cell of those servers
(default: all that are installed), keeps what came of it in docs/reference/conformance.json and writes
docs/reference/conformance.md from that. A test holds the page to the record, and the record to what there is to run.
"""

import json
import logging
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pawlock.primitives.registry import REGISTRY
from tests.conformance import matrix
from tests.support.servers import Flavour, Server, available

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "conformance.md"
RECORD = PAGE.with_suffix(".json")

Record = dict[str, dict[str, Any]]
"""By server: its version, and by topology what came of each primitive, or why there is no such cell."""

HEAD = """# Conformance matrix

One [suite of checks](../how-to/test-a-primitive.md) runs for every primitive, on every topology, on every server, with
both APIs. `python tools/conformance_table.py` writes this page from its run. Each number is the number of checks that
ran, threads and asyncio together, and all of them passed. Checks that intercept the connection between a client and its
server (lost and late replies) run with a single server only, so there are more of them there.

"–" means that it raises `NotSupported`: [why](../concepts/redlock.md#what-it-does-not-support). Several masters have no
queue, so these checks are not run there: {elsewhere}.
"""


def read() -> Record:
    """The record of the last run."""
    found: Record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return found


def page(record: Record) -> str:
    """The page that a record stands for."""
    elsewhere = ", ".join(f"`{name}` ({why})" for name, why in sorted(matrix.ELSEWHERE.items()))
    lines = [HEAD.format(elsewhere=elsewhere)]
    for server in matrix.SERVERS:
        found = record.get(server)
        if found is None:
            continue
        cells: dict[str, Any] = {
            name: found["cells"][name] for name in matrix.TOPOLOGIES if name in found["cells"]
        }
        lines += [f"## {found['version']}", ""]
        lines += ["| | " + " | ".join(cells) + " |", "|---" * (len(cells) + 1) + "|"]
        for kind in REGISTRY:
            words = [_word(topology, kind, cell) for topology, cell in cells.items()]
            lines.append(f"| `{kind}` | " + " | ".join(words) + " |")
        waiting = [topology for topology in matrix.TOPOLOGIES if topology not in cells]
        missing = [f"{topology}: not in the record of the last run" for topology in waiting]
        missing += [f"{topology}: {cell}" for topology, cell in cells.items() if isinstance(cell, str)]
        lines += ["", *([f"Not run: {'; '.join(missing)}.", ""] if missing else [])]
    return "\n".join(lines)


def _word(topology: str, kind: str, cell: Any) -> str:  # noqa: ANN401 - of the record
    if isinstance(cell, str):
        return ""
    return "–" if matrix.refused_on(topology, kind) else str(cell[kind])


def version_of(flavour: Flavour) -> str:
    """What a server calls itself."""
    with Server(flavour) as server:
        told = server.command("INFO", "server")
    lines = told.decode().splitlines() if isinstance(told, bytes) else []
    facts: dict[str, str] = dict(line.split(":", 1) for line in lines if ":" in line)
    program = facts.get("server_name", "redis")
    return f"{program.capitalize()} {facts[f'{program}_version']}"


def carry_out(flavour: Flavour, topology: str) -> dict[str, int] | str:
    """Run one cell: how many checks of each primitive, or why there is none. Raises if a promise is broken."""
    reason = matrix.why_not(topology, flavour)
    if reason is not None:
        return reason
    start = matrix.TOPOLOGIES[topology]
    with start(flavour) as place:
        results = matrix.play(place, matrix.kinds_of(topology))
    again = broken = [result for result in results if result.error is not None]
    # On a machine that is busy elsewhere a short lease can truly be lost: those once more, by themselves.
    for parallel in (4, 1):
        if again:
            with start(flavour) as place:
                results_again = matrix.play(
                    place, sorted({result.kind for result in again}), parallel=parallel
                )
            again = [result for result in results_again if result.error is not None]
    if again:
        raise AssertionError(f"{flavour}, {topology}:\n" + "\n".join(map(str, again)))
    counts: dict[str, int] = defaultdict(int)
    for result in results:
        counts[result.kind] += 1
    print(f"{flavour}, {topology}: {len(results)} checks, {len(broken)} of them once more", flush=True)
    return dict(counts)


def main(arguments: list[str]) -> int:
    """Run, record, write; with ``--missing``, only what the record lacks of the version that is there."""
    logging.getLogger("pawlock").setLevel(logging.CRITICAL)
    missing_only = "--missing" in arguments
    wanted = [argument for argument in arguments if argument != "--missing"]
    for flavour in matrix.SERVERS:
        if wanted and flavour not in wanted:
            continue
        if reason := available(flavour):
            print(f"{flavour}: {reason}")
            continue
        version = version_of(flavour)
        kept = read().get(flavour, {})
        cells: dict[str, Any] = kept["cells"] if missing_only and kept.get("version") == version else {}
        for topology in matrix.TOPOLOGIES:
            if topology not in cells or isinstance(cells[topology], str):
                cells[topology] = carry_out(flavour, topology)
                # Another run of this, for another server, may have written meanwhile.
                record: Record = {**read(), flavour: {"version": version, "cells": cells}}
                RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(read()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
