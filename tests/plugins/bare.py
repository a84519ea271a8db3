"""A machine with nothing on it: what `tests/test_bare_machine.py` runs tests under, in a process of its own.

With ``PAWL_BARE=servers`` no server of `pawl.testing` can be started either, as if its wheel were not installed.
"""

import os
from typing import NoReturn

from pawl.testing import servers


def _missing(flavour: servers.Flavour) -> NoReturn:
    raise servers.ServerNotInstalledError(f"no {flavour} on a bare machine")


if os.environ.get("PAWL_BARE") == "servers":
    servers.find_binary = _missing
