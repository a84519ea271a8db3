"""Of a case that runs in both APIs, `make test` runs one, chosen by the case's name; the full run runs both."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

__all__ = ["in_one_api"]

_APIS = ("threads", "asyncio")


def in_one_api(items: list[pytest.Item], folder: Path) -> None:
    """Mark as slow, of each case in a folder, the API that it is not the turn of."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        found = [value for value in params.values() if isinstance(value, str) and value in _APIS]
        if found and folder in item.path.parents:
            turn = crc32(item.name.replace(found[0], "").encode()) >> 4 & 1
            if found[0] != _APIS[turn]:
                item.add_marker(pytest.mark.slow)
