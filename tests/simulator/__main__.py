"""``python -m tests.simulator``: see ``command``."""

import sys

from tests.simulator.command import main

sys.exit(main(sys.argv[1:]))
