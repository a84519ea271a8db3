from __future__ import annotations

import pytest

from tests.support.resp import ProtocolError, Reply, ReplyError, encode, parse, unit_end

UNITS: list[tuple[bytes, Reply]] = [
    (b"+OK\r\n", "OK"),
    (b":-12\r\n", -12),
    (b"$5\r\na\r\nbc\r\n", b"a\r\nbc"),
    (b"$0\r\n\r\n", b""),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", [[1], b"x"]),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b",1.5\r\n", "1.5"),
    (b"(12345678901234567890\r\n", "12345678901234567890"),
    (b"=7\r\ntxt:abc\r\n", b"txt:abc"),
    (b"%1\r\n+k\r\n*2\r\n:1\r\n:2\r\n", {"k": [1, 2]}),
    (b"~2\r\n:1\r\n:2\r\n", [1, 2]),
    (b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n", ["invalidate", [b"a"]]),
    (b"|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n", b"v"),
]


@pytest.mark.parametrize(("raw", "value"), UNITS)
def test_unit_ends_where_it_ends_and_not_before(raw: bytes, value: Reply) -> None:
    assert parse(raw) == (value, len(raw))
    assert unit_end(raw + b"+next\r\n") == len(raw)
    assert unit_end(b"++\r\n" + raw, 4) == len(raw) + 4
    assert [unit_end(raw[:cut]) for cut in range(len(raw))] == [None] * len(raw)


def test_errors_are_values() -> None:
    for raw in (b"-ERR no\r\n", b"!6\r\nERR no\r\n"):
        value, end = parse(raw)
        assert isinstance(value, ReplyError)
        assert (str(value), end) == ("ERR no", len(raw))


@pytest.mark.parametrize("raw", [b"hello\r\n", b"$x\r\n", b"*?\r\n"])
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match="not RESP"):
        unit_end(raw)


def test_commands_carry_any_bytes() -> None:
    assert encode("SET", b"\xff\r\n", 1) == b"*3\r\n$3\r\nSET\r\n$3\r\n\xff\r\n\r\n$1\r\n1\r\n"
