"""A machine with nothing on it: what `tests/project/test_bare_machine.py` runs tests under, in a process of its own.

With ``PAWLOCK_BARE=servers`` no server of `tests.support` can be started either, as if its wheel were not installed.
"""

import os
from typing import NoReturn

from tests.support import servers


def _missing(flavour: servers.Flavour) -> NoReturn:
    raise servers.ServerNotInstalledError(f"no {flavour} on a bare machine")


if os.environ.get("PAWLOCK_BARE") == "servers":
    servers.find_binary = _missing
