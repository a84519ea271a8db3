"""etcd's JSON gateway past every client library: what a test looks behind pawlock with, or breaks things with."""

from __future__ import annotations

import contextlib
import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, Self

__all__ = ["EtcdError", "EtcdWire", "Event", "Pair", "b64", "prefix_end"]

Json = dict[str, Any]


class EtcdError(Exception):
    """The server refused a request.

    Attributes:
        code: The number of the gRPC status; 0: it gave none.
    """

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Pair:
    """A key with what is known of it."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int

    @classmethod
    def of(cls, found: Json) -> Pair:
        """Read one of an answer, which leaves out what is empty or 0."""
        return cls(
            b64decode(found.get("key", "")),
            b64decode(found.get("value", "")),
            int(found.get("create_revision", 0)),
            int(found.get("mod_revision", 0)),
            int(found.get("lease", 0)),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """A change that a watch saw."""

    deleted: bool
    pair: Pair


def b64(data: str | bytes) -> str:
    """Bytes as the gateway wants them."""
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with a prefix; of none, of all keys there are."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\x00"


class EtcdWire:
    """One connection to one member; a broken one is made anew by the next call. For one thread at a time.

    Args:
        host: Where the member is.
        port: Its port for clients.
        tls: How it is verified; None: no TLS.
        timeout: Seconds that each call may take.
    """

    def __init__(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout: float = 10.0
    ) -> None:
        self._at = (host, port, tls, timeout)
        self._connection = self._make()
        self.token = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; a later call connects again."""
        self._connection.close()

    def call(self, path: str, /, **body: Any) -> Json:
        """Ask for something, such as ``call("kv/range", key=b64("a"))``.

        Raises:
            EtcdError: The server refused.
            OSError: It does not answer.
        """
        with self._answer(self._connection, path, body) as answer:
            return self._read(answer)

    def login(self, user: str, password: str) -> None:
        """Send the token of a user from now on."""
        self.token = ""
        self.token = self.call("auth/authenticate", name=user, password=password)["token"]

    # ---------------------------------------------------------------- keys

    def range(self, prefix: str | bytes = b"", *, exact: bool = False) -> list[Pair]:
        """All keys that begin with a prefix (or are it), in the order in which they were made."""
        start = prefix.encode() if isinstance(prefix, str) else prefix
        end = {} if exact else {"range_end": b64(prefix_end(start))}
        found = self.call(
            "kv/range", key=b64(start or b"\x00"), sort_target="CREATE", sort_order="ASCEND", **end
        )
        return [Pair.of(one) for one in found.get("kvs", [])]

    def put(self, key: str | bytes, value: str | bytes = b"", lease: int = 0) -> int:
        """Write a key; the revision of that."""
        return _revision(self.call("kv/put", key=b64(key), value=b64(value), lease=str(lease)))

    def delete(self, prefix: str | bytes, *, exact: bool = False) -> int:
        """Delete all keys that begin with a prefix (or are it); how many there were."""
        start = prefix.encode() if isinstance(prefix, str) else prefix
        end = {} if exact else {"range_end": b64(prefix_end(start))}
        return int(self.call("kv/deleterange", key=b64(start or b"\x00"), **end).get("deleted", 0))

    def txn(self, compare: list[Json], success: list[Json], failure: list[Json] | None = None) -> Json:
        """Carry out a transaction, written as the gateway wants it."""
        return self.call("kv/txn", compare=compare, success=success, failure=failure or [])

    def revision(self) -> int:
        """The revision of the whole store."""
        return _revision(self.call("kv/range", key=b64(b"\x00"), count_only=True))

    def compact(self, revision: int) -> None:
        """Forget what was before a revision."""
        self.call("kv/compaction", revision=str(revision), physical=True)

    # ---------------------------------------------------------------- leases

    def grant(self, seconds: int) -> int:
        """A new lease; its id."""
        return int(self.call("lease/grant", TTL=str(seconds))["ID"])

    def revoke(self, lease: int) -> None:
        """End a lease, and the keys that hang on it."""
        self.call("lease/revoke", ID=str(lease))

    def keep_alive(self, lease: int) -> int:
        """Renew a lease; the seconds that it lives on, 0 if there is none any more."""
        return int(self.call("lease/keepalive", ID=str(lease))["result"].get("TTL", 0))

    def time_to_live(self, lease: int) -> int:
        """The seconds that a lease still lives; -1 if there is none any more."""
        return int(self.call("lease/timetolive", ID=str(lease)).get("TTL", 0))

    def leases(self) -> list[int]:
        """The ids of all leases."""
        return [int(one["ID"]) for one in self.call("lease/leases").get("leases", [])]

    # ---------------------------------------------------------------- the member

    def healthy(self) -> bool:
        """Whether the member takes part in a cluster that has a leader, and has no alarm."""
        self._connection.request("GET", "/health")
        with self._connection.getresponse() as answer:
            return bool(json.loads(answer.read()).get("health") == "true")

    def status(self) -> Json:
        """What it says of itself: ``version``, ``leader``, ``dbSize``; its own id is in ``header``."""
        return self.call("maintenance/status")

    # ---------------------------------------------------------------- watches

    @contextlib.contextmanager
    def watch(self, prefix: str | bytes, revision: int = 0) -> Generator[Iterator[Event]]:
        """Watch all keys that begin with a prefix, on a connection of its own.

        Args:
            prefix: Of the keys.
            revision: From which revision; 0: from now on.

        Yields:
            The events. One that does not come within the time of a call raises ``TimeoutError``. The watch has begun.
        """
        start = prefix.encode() if isinstance(prefix, str) else prefix
        wanted: Json = {"key": b64(start or b"\x00"), "range_end": b64(prefix_end(start))}
        if revision:
            wanted["start_revision"] = str(revision)
        connection = self._make()
        with (
            contextlib.closing(connection),
            self._answer(connection, "watch", {"create_request": wanted}) as answer,
        ):
            self._read(answer, answer.readline())
            yield self._events(answer)

    def _events(self, answer: HTTPResponse) -> Iterator[Event]:
        while line := answer.readline():
            result = self._read(answer, line)["result"]
            if result.get("canceled"):
                raise EtcdError(f"the watch was cancelled: {result}")
            for event in result.get("events", []):
                yield Event(event.get("type") == "DELETE", Pair.of(event["kv"]))

    # ---------------------------------------------------------------- inside

    def _make(self) -> HTTPConnection:
        host, port, tls, timeout = self._at
        if tls is not None:
            return HTTPSConnection(host, port, timeout=timeout, context=tls)
        return HTTPConnection(host, port, timeout=timeout)

    @contextlib.contextmanager
    def _answer(self, connection: HTTPConnection, path: str, body: Json) -> Generator[HTTPResponse]:
        headers = {"Authorization": self.token} if self.token else {}
        try:
            connection.request("POST", f"/v3/{path}", json.dumps(body).encode(), headers)
            with connection.getresponse() as answer:
                yield answer
        except HTTPException as error:
            connection.close()
            raise ConnectionResetError(f"the server closed the connection: {error!r}") from error
        except OSError:
            connection.close()
            raise

    def _read(self, answer: HTTPResponse, line: bytes | None = None) -> Json:
        found: Json = json.loads(answer.read() if line is None else line)
        error = found.get("error", found if answer.status >= 400 else None)
        if error is not None:
            said = error if isinstance(error, dict) else found
            code = int(said.get("grpc_code") or said.get("code") or 0)
            raise EtcdError(str(said.get("message") or said.get("error") or said), code)
        return found


def _revision(answer: Json) -> int:
    return int(answer["header"]["revision"])
