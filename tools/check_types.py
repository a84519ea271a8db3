"""Ask pyright whether each public symbol of pawlock has a known type: `python tools/check_types.py PYTHON`.

Drop-ins inherit from classes of redis-py, so that `isinstance` and type checkers take them for these, and what Celery
and Django load inherits from their classes. Pyright does not follow such a base class when it verifies a package,
although it does when it checks a program; that alone is let pass.
"""

import json
import subprocess
import sys
from pathlib import Path

FOREIGN_BASES = ("pawlock.compat.redis.", "pawlock.integrations.celery.", "pawlock.integrations.django.")
ABOUT_BASES = ("Type of metaclass unknown", "Type of base class")


def main(python: str) -> int:
    """Print each symbol that has no known type; 1 when there is one."""
    command = [str(Path(python).with_name("pyright")), "--pythonpath", python]
    done = subprocess.run(
        [*command, "--verifytypes", "pawlock", "--ignoreexternal", "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    except (ValueError, KeyError):
        print(done.stdout, done.stderr)
        return 1
    found = [
        f"{symbol['name']}: {one['message']}"
        for symbol in symbols
        for one in symbol.get("diagnostics", ())
        if one["severity"] == "error"
        and not (symbol["name"].startswith(FOREIGN_BASES) and one["message"].startswith(ABOUT_BASES))
    ]
    print("\n".join(found) if found else f"{len(symbols)} symbols have a known type")
    return 1 if found or not symbols else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
