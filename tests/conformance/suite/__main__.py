"""``python -m tests.conformance.suite URL [KIND …]``: what a server keeps of what each primitive promises."""

import sys

from tests.conformance.suite import main

sys.exit(main(sys.argv[1:]))
