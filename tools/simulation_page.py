"""Write docs/reference/simulated.md from tools/simulated.json: the results of a campaign of the simulator.

`python -m pawlock.testing simulate --seeds N --start M --results tools/simulated.json` adds to the numbers, part by part;
a test holds the page to them.
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tests.simulator.campaign import may_meet  # noqa: E402 - the checkout has to be on the path first
from tests.simulator.plan import EVERYWHERE, FAULTS, OPERATIONS, TOPOLOGIES  # noqa: E402

RESULTS = ROOT / "tools" / "simulated.json"
PAGE = ROOT / "docs" / "reference" / "simulated.md"

HEAD = """# Simulation results

One campaign of the [simulator](../concepts/simulation.md): {seeds:,} seeds and {operations:,} operations. In
{share:.1f} % of the runs a second owner acquired a lock after a loss. {verdict}

It took {hours:.1f} hours of one core on a shared machine, {rate:.0f} seeds a second; a million seeds would have taken
{million:.0f} hours there. `tools/simulation_page.py` writes this page from the numbers that
`python -m pawlock.testing simulate --results` stores.

## Faults and the operations they hit

How often a fault was active, or struck, during an operation. A dash means that the two cannot coincide.

"""


def page(known: dict[str, Any]) -> str:
    """The page of a campaign's numbers."""
    seeds = sum(end - first for first, end in known["ranges"])
    rate = seeds / known["core_seconds"]
    text = HEAD.format(
        seeds=seeds,
        operations=known["operations"],
        share=100 * known["second_owners"] / seeds,
        verdict=_verdict(known),
        hours=known["core_seconds"] / 3600,
        rate=rate,
        million=1e6 / rate / 3600,
    )
    met: dict[str, int] = known["met"]
    rows = [[fault, *[_met(met, fault, what) for what in OPERATIONS]] for fault in faults_of(known)]
    text += _table(["fault", *OPERATIONS], rows)
    text += (
        "\n## Primitives and servers\n\nThe number of seeds for each primitive on each kind of server.\n\n"
    )
    where: dict[str, int] = known["topologies"]
    families = sorted({pair.split(" ")[0] for pair in where})
    servers = [one for one in TOPOLOGIES if one in {pair.split(" ")[1] for pair in where}]
    text += _table(
        ["primitive", *servers],
        [[one, *[f"{where.get(f'{one} {other}', 0):,}" for other in servers]] for one in families],
    )
    return text


_LATER = ("new_threads", "slow", "break", "rolling", "all_slow")
"""Faults of several masters that are younger than the stored campaign; they come in with the next one."""


def faults_of(known: dict[str, Any]) -> tuple[str, ...]:
    """The faults that its seeds could draw: a campaign from before there were clusters has none of theirs."""
    drawn = FAULTS if any(pair.endswith(" cluster") for pair in known["topologies"]) else EVERYWHERE
    struck = {pair.partition(" ")[0] for pair in known["met"]}
    return tuple(fault for fault in drawn if fault not in _LATER or fault in struck)


def _verdict(known: dict[str, Any]) -> str:
    if not known["violations"]:
        return "No promise was violated."
    return f"Violations: {known['violations']}; see [their causes](../concepts/simulation.md#what-it-found)."


def _met(met: dict[str, int], fault: str, what: str) -> str:
    count = met.get(f"{fault} {what}", 0)
    return f"{count:,}" if count or may_meet(fault, what) else "–"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *[f"| {' | '.join(row)} |" for row in rows]]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
