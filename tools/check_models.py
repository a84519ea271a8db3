"""Check the Spin models in `formal/`, and every broken variant of each, against the verdict that its header names.

A header line ``broken NAME | PROPERTY | what is wrong`` says which property must fail with ``-DNAME``; a line
``reach NAME | what`` says what must be reachable, so that a model does not hold because nothing happens in it.
The model itself must hold in whole: a search that was cut short is a difference.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parent.parent / "formal"
PROGRAMS = ("spin", "gcc")
LIMIT = 300.0
"""Seconds for one search; each takes a few."""
SAFETY = (("-DSAFETY", "-DNOCLAIM"), ("-E",))
LIVENESS = (("-DNFAIR=3",), ("-a", "-f"))


@dataclass(frozen=True, slots=True)
class Case:
    """One search: a model or a variant of it.

    Attributes:
        model: The file without its ending.
        variant: What is defined, or "" for the model as it is.
        expected: "holds", or the property that must fail.
        text: What the variant is.
        live: Whether it is a search for a fair cycle.
    """

    model: str
    variant: str
    expected: str
    text: str
    live: bool


@dataclass(frozen=True, slots=True)
class Result:
    """What Spin said of a case, and how many states it stored."""

    case: Case
    verdict: str
    states: int

    @property
    def fits(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict == self.case.expected


def missing() -> str:
    """Say which program is not there; "" when the models can be checked."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"no {' and no '.join(lacking)} on PATH (apt-get install spin gcc)" if lacking else ""


def cases() -> list[Case]:
    """Read all cases from the headers."""
    found: list[Case] = []
    for path in sorted(MODELS.glob("*.pml")):
        text, name = path.read_text(encoding="utf-8"), path.stem
        found.append(Case(name, "", "holds", "the model: safety", live=False))
        if re.search(r"^ltl live ", text, re.MULTILINE):
            found.append(Case(name, "", "holds", "the model: liveness under weak fairness", live=True))
        for variant, broken, what in re.findall(r"^ \* broken (\w+) \| (\w+) \| (.+)$", text, re.MULTILINE):
            found.append(Case(name, variant, broken, what, live=broken == "live"))
        for variant, what in re.findall(r"^ \* reach (\w+) \| (.+)$", text, re.MULTILINE):
            found.append(Case(name, variant, "reached", what, live=False))
    return found


def judge(said: str) -> str:
    """Read the verdict from what the search printed."""
    if found := re.search(r"assertion violated (\w+)", said):
        return "reached" if found[1] == "unreached" else found[1]
    if "acceptance cycle" in said:
        return "live"
    whole = "errors: 0" in said and "too small" not in said and "not completed" not in said
    return "holds" if whole else "unfinished: " + " ".join(said.split())[:200]


def check(case: Case) -> Result:
    """Run one search.

    Raises:
        subprocess.CalledProcessError: Spin or the compiler refuses the model.
        subprocess.TimeoutExpired: It takes too long.
    """
    build, search = LIVENESS if case.live else SAFETY
    define = [f"-D{case.variant}"] if case.variant else []
    with tempfile.TemporaryDirectory() as folder:

        def run(*command: str) -> str:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=True
            )
            return done.stdout

        run("spin", *define, "-a", str(MODELS / f"{case.model}.pml"))
        run("gcc", "-O2", "-w", *build, "-DMEMLIM=3000", "-o", "pan", "pan.c")
        said = run(str(Path(folder) / "pan"), *search, "-n", "-m3000000")
    stored = re.search(r"(\d+) states, stored", said)
    return Result(case, judge(said), int(stored[1]) if stored else 0)


def main() -> int:
    """Check all, print a table, and return 1 on a difference."""
    if reason := missing():
        print(f"the models cannot be checked: {reason}")
        return 2
    differences = 0
    for case in cases():
        result = check(case)
        differences += not result.fits
        told = "" if result.fits else f"   EXPECTED {case.expected}"
        name = f"{case.model:8} {case.variant or '-':16}"
        print(f"{name} {result.verdict:12} {result.states:9,d} states  {case.text}{told}", flush=True)
    print(f"{differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
