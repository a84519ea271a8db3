"""A real server whose wall clock can be moved while it runs: the clock shim, compiled when it is needed."""

from __future__ import annotations

import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.servers import Server, available, find_binary

__all__ = ["ShiftedServer", "why_not"]

_SOURCE = Path(__file__).with_name("shim.c")


def why_not() -> str | None:
    """Why no clock can be moved on this machine, fit for `pytest.skip`; None when it can."""
    if shutil.which("cc") is None:
        return "no C compiler (cc) for the clock shim"
    return available("valkey")


@cache
def _shim(folder: Path) -> Path:
    made = folder / "shim.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", str(made), str(_SOURCE), "-ldl"], check=True, timeout=60
    )
    return made


class ShiftedServer(Server):
    """A server under a clock that `jump` moves.

    Args:
        folder: Where the shim and the clock's file are kept.
        options: As for `Server`.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        self._file = folder / f"clock-{id(self)}"
        self._file.write_bytes(struct.pack("=q", 0))
        wrapper = folder / f"server-{id(self)}"
        wrapper.write_text(
            f'#!/bin/sh\nexec env LD_PRELOAD="{_shim(folder)}" PAWLOCK_TEST_CLOCK="{self._file}" '
            f'"{find_binary("valkey")}" "$@"\n'
        )
        wrapper.chmod(0o700)
        super().__init__("valkey", binary=str(wrapper), **options)

    def jump(self, seconds: float) -> None:
        """Put its wall clock so far from the true one; 0 puts it right."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", round(seconds * 1e6)))
