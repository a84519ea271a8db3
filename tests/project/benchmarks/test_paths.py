"""The traced paths of a lock: each is found, and passes through what it must."""

from __future__ import annotations

import pytest

from benchmarks import paths


def test_each_path_is_traced(capsys: pytest.CaptureFixture[str]) -> None:
    assert paths.main(["--show", "a"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("(")]
    assert [row.split(")")[0][1:] for row in rows] == list(paths.PATHS)
    for row in rows:
        calls, modules, moves = map(int, row.split()[-3:])
        assert calls > moves >= modules - 1 > 0
    shown = lines[lines.index(rows[-1]) + 1 :]
    assert "sync/block.py __enter__" in shown[0]
    assert "core/acquire/acquire.py acquire" in shown
    assert "core/release/release.py release" in shown
