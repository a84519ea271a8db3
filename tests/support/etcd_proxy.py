"""The proxy that breaks the network on purpose, for etcd's JSON gateway: requests and answers of HTTP/1.1, and watches.

A request is matched by its path below ``/v3/`` (``proxy.drop_request("kv/txn")``) or by what its keys and values contain.
What a watch brings, one chunk of its endless answer for each change, is a push message: ``cut_push`` loses it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from tests.support._link import Link
from tests.support._rules import Action, Request, Rule
from tests.support.etcd import Member
from tests.support.proxy import Proxy

__all__ = ["EtcdProxy"]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)
_LAST = b"0\r\n\r\n"
_IN_BASE64 = ("key", "value", "range_end")


class EtcdLink(Link):
    """One client connection. On one that a watch was asked for on, nothing else follows."""

    def _request_end(self, buffer: bytearray) -> int | None:
        return _end(buffer)

    def _reply_end(self, buffer: bytearray) -> int | None:
        return _end(buffer, endless=self._subscribed)

    def _read_request(self, raw: bytes) -> Request:
        head, _, body = raw.partition(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].removeprefix(b"/v3/")
        found = json.loads(body) if body else {}
        return Request((path, *_texts(found)), self._number)

    def _expect(self, request: Request, rule: Rule | None, copies: int) -> None:
        self._subscribed = request.command == "WATCH"
        # Whoever carries a request twice hands one answer on: a second one would pass for that of the next request.
        unwanted = Rule(Action.SWALLOW_REPLY, None, nth=1, times=1, seconds=None)
        self._owed.extend([rule, *[unwanted] * (copies - 1)] if copies else [])

    def _push_parts(self, raw: bytes) -> tuple[bytes, ...] | None:
        if raw.startswith(b"HTTP/") or b'"events"' not in raw:
            return None
        chunks = b"".join(_chunks(raw))
        return (b"events", *(part for line in chunks.splitlines() for part in _texts(json.loads(line))))

    async def _last_replies(self, writer: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        # The end of a connection would have the server stop what it was asked on it.
        end = time.monotonic() + 5.0
        while self._owed and not back.done() and time.monotonic() < end:
            await asyncio.wait({back}, timeout=0.01)


class EtcdProxy(Proxy):
    """See ``Proxy``; it stands before one member, without TLS."""

    link = EtcdLink

    def __init__(self, member: Member) -> None:
        super().__init__(f"redis://{member.at}")

    @property
    def url(self) -> str:
        """URL for a client."""
        return f"etcd://127.0.0.1:{self.port}"


def _end(buffer: bytearray, *, endless: bool = False) -> int | None:
    """Where the first request, answer or part of an endless answer ends; None: it is not complete."""
    if endless and buffer and not buffer.startswith(b"HTTP/"):
        return _end_of_chunks(buffer, 0, last=False)
    head = buffer.find(b"\r\n\r\n")
    if head < 0:
        return None
    lines, begin = buffer[: head + 2], head + 4
    if _CHUNKED.search(lines):
        return begin if endless else _end_of_chunks(buffer, begin, last=True)
    length = _LENGTH.search(lines)
    end = begin + (int(length[1]) if length else 0)
    return end if end <= len(buffer) else None


def _end_of_chunks(buffer: bytearray, begin: int, *, last: bool) -> int | None:
    """The end of the chunks up to the last, or up to the first that ends a line."""
    while (line := buffer.find(b"\r\n", begin)) >= 0:
        size = int(buffer[begin:line], 16)
        end = line + 2 + size + 2
        if end > len(buffer):
            return None
        if size == 0 or (not last and buffer[end - 3 : end - 2] == b"\n"):
            return end
        begin = end
    return None


def _chunks(raw: bytes) -> Iterator[bytes]:
    while raw and not raw.startswith(_LAST):
        size, _, raw = raw.partition(b"\r\n")
        yield raw[: int(size, 16)]
        raw = raw[int(size, 16) + 2 :]


def _texts(found: Any) -> Iterator[bytes]:
    """What is written in a message, decoded."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name in _IN_BASE64 and isinstance(value, str):
                yield b64decode(value)
            else:
                yield from _texts(value)
    elif isinstance(found, list):
        for value in found:
            yield from _texts(value)
    else:
        yield str(found).encode()
