"""The page on other libraries names every kind that there is, and the versions that are installed."""

from __future__ import annotations

import json
import re

from interop.kinds import DRIVERS, KINDS, ROOT

PAGE = (ROOT / "docs" / "dev" / "interop.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
OF_KIND = {kind: row for row in ROWS for kind in re.findall(r"`([^`]+)`", row[0])}


def pinned() -> dict[str, str]:
    """What each part installs."""
    text = (DRIVERS / "python" / "requirements.txt").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(\S+)==(\S+)$", text, re.MULTILINE))
    package = json.loads((DRIVERS / "node" / "package.json").read_text(encoding="utf-8"))
    found |= {name: version.rpartition("@")[2] for name, version in package["dependencies"].items()}
    text = (DRIVERS / "go" / "go.mod").read_text(encoding="utf-8")
    found |= dict(re.findall(r"^\t(\S+) v(\S+)$", text, re.MULTILINE))
    for path in (DRIVERS / "java").glob("*/pom.xml"):
        text = path.read_text(encoding="utf-8")
        rows = re.findall(r"<artifactId>(\S+)</artifactId><version>(\S+)</version>", text)
        found |= {
            f"{path.parent.name}/{artifact}": version for artifact, version in rows if artifact != "drivers"
        }
    return found


def test_the_page_names_every_kind() -> None:
    assert not set(KINDS) - set(OF_KIND), "add it to the table of docs/dev/interop.md"


LIBRARIES = {
    "redis-py": "redis",
    "pyredislock": "python-redis-lock",
    "pottery": "pottery",
    "aioredlock": "aioredlock",
    "redlock4": "redlock4",
    "redlock5": "redlock5",
    "redis-semaphore": "redis-semaphore",
    "ioredis": "ioredis",
    "redsync": "github.com/go-redsync/redsync/v4",
    "bsm": "github.com/bsm/redislock",
    "rueidis": "github.com/redis/rueidis",
    "redisson": "redisson4/redisson",
    "redisson3": "redisson3/redisson",
    "spring": "spring/spring-integration-redis",
    "shedlock": "spring/shedlock-provider-redis-spring",
}


def test_the_page_has_the_versions_that_are_installed() -> None:
    known = pinned()
    for kind, library in LIBRARIES.items():
        assert known[library] in OF_KIND[kind][-1].strip(" |").split(", "), kind


def test_versions_are_exact() -> None:
    for library, version in pinned().items():
        assert re.fullmatch(r"\d+(\.\w+)+([-.][\w.]+)?", version), f"{library} {version}"
