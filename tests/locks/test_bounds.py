"""Nothing grows without bound: what idle names leave behind is small and has an end."""

from __future__ import annotations

import pawl
from pawl.testing._resp import texts
from pawl.testing.servers import Server

DAY_MS = 86_400_000


def test_short_lived_names_leave_only_small_fences(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with pawl.connect(valkey.url) as client:
        for number in range(10_000):
            client.lock(f"order:{number}").acquire().release()
    keys = texts(valkey.command("KEYS", "*"))
    assert len(keys) == 10_000
    assert all(key.endswith(":fence") for key in keys)
    sizes = []
    for key in keys[::50]:
        left = valkey.command("PTTL", key)
        assert isinstance(left, int)
        assert 0 < left <= DAY_MS + 2 * 3_600_000
        size = valkey.command("MEMORY", "USAGE", key)
        assert isinstance(size, int)
        sizes.append(size)
    print("bytes", max(sizes))
    assert max(sizes) <= 200
