"""The members of an etcd cluster over its JSON gateway (``/v3``): one at a time, another one where that fails.

Why the gateway and no gRPC: it needs no generated stubs and no library with threads and forks of its own. It costs a
fifth of a millisecond a request on the server, beside a write that a quorum flushes.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import aiohttp

from pawlock._system import last_steps
from pawlock.core.runtime import Fault, FaultKind

if TYPE_CHECKING:
    from pawlock.topology.endpoint import Endpoint

__all__ = ["Gateway", "Gone", "decoded", "encoded"]

_KINDS = {
    3: FaultKind.DENIED,  # no user given, or a wrong password: nothing else that is sent here is invalid
    7: FaultKind.DENIED,
    8: FaultKind.OUT_OF_MEMORY,  # the quota
    9: FaultKind.DENIED,  # a user given, and authentication is off
    12: FaultKind.UNSUPPORTED,
    16: FaultKind.DENIED,
}
"""By the code of gRPC, https://grpc.github.io/grpc/core/md_doc_statuscodes.html; others pass: no leader, a new one."""

_NO_LEASE, _FORGOTTEN = 5, 16


class Gone(Exception):
    """The lease is not there any more."""


class _Refused(Exception):
    """The code and the words of a refusal."""


def encoded(word: bytes) -> str:
    """Bytes as they stand in JSON."""
    return b64encode(word).decode()


decoded: Callable[[str], bytes] = b64decode
"""The bytes that stand there."""


class _Connector(aiohttp.TCPConnector):
    """Says nothing where it is dropped: who does not close a client of pawlock is not told so by its connections."""

    def __del__(self, *more: object) -> None:
        del more


class Gateway:
    """Asks the members; belongs to one event loop, that of its first request.

    Args:
        nodes: The members.

    Attributes:
        at: Which of them is asked.
    """

    def __init__(self, nodes: Sequence[Endpoint]) -> None:
        _open.add(self)
        self._nodes = nodes
        self.at: int = 0
        self._session: aiohttp.ClientSession | None = None
        self._over = False
        self._token = ""
        self._tls: list[ssl.SSLContext | bool] = [
            _context(node) if node.scheme == "etcds" else True for node in nodes
        ]

    async def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What is answered to one request.

        Args:
            path: Behind ``/v3/``.
            body: The request's message.

        Raises:
            Gone: It is about a lease that is not there.
            Fault: It is not answered, or refused.
        """
        for _ in self._nodes[1:]:
            try:
                return await self._logged_in(path, body)
            except Fault as fault:
                if fault.kind is not FaultKind.UNREACHABLE:
                    raise
        return await self._logged_in(path, body)

    async def _logged_in(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        while True:
            known = bool(self._token)
            try:
                if not known:
                    await self._log_in()
                return await self._post(path, body)
            except _Refused as refused:
                code, text = refused.args
                # A member that started anew knows no token that it gave before; nor is one good after a change of rights.
                if not known or (code != _FORGOTTEN and "auth store is old" not in text):
                    raise self._fault(code, text) from None
                self._token = ""

    async def _log_in(self) -> None:
        settings = self._nodes[self.at].settings
        name, password = settings.get("username"), settings.get("password")
        if (provider := settings.get("credential_provider")) is not None:
            *given, password = await asyncio.to_thread(provider.get_credentials)
            name = given[0] if given else name
        if name:
            login = {"name": name, "password": password or ""}
            self._token = (await self._post("auth/authenticate", login))["token"]

    def _fault(self, code: int, text: str) -> Fault:
        kind = _KINDS.get(code, FaultKind.UNANSWERED)
        text = f"{self._nodes[self.at].shown}: {text}"
        if maybe := kind is FaultKind.UNANSWERED:
            self.leave(self.at)
        return Fault(kind, text, maybe_applied=maybe, final=kind is FaultKind.DENIED)

    def leave(self, member: int) -> None:
        """Ask another than this member from now on; several may find the same at once."""
        if self.at == member:
            self.at = (member + 1) % len(self._nodes)

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        member = self.at
        node = self._nodes[member]
        try:
            async with self._begin(path, body) as response:
                return _read(node, response.status, await response.text())
        except aiohttp.ClientConnectorError as error:
            self.leave(member)
            raise Fault(FaultKind.UNREACHABLE, f"{node.shown}: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            self.leave(member)
            text = f"{node.shown}: the connection broke: {str(error) or type(error).__name__}"
            raise Fault(FaultKind.UNANSWERED, text, maybe_applied=True) from None

    def _begin(self, path: str, body: Mapping[str, Any]) -> Any:
        session = self._session
        if self._over:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if session is None:
            # Each waiter has a connection; limits of time are the caller's.
            session = self._session = aiohttp.ClientSession(
                connector=_Connector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                read_bufsize=16 * 1024 * 1024,
            )
        tls = self._tls[self.at]
        url = f"http{'' if tls is True else 's'}://{self._nodes[self.at].shown}/v3/{path}"
        headers = {"Authorization": self._token} if self._token else {}
        return session.post(url, data=json.dumps(body), headers=headers, ssl=tls)

    async def changes(self, key: bytes, end: bytes, revision: int, *, frees: bool = True) -> None:
        """Sleep until something may have become free: a key of a range is deleted or replaced after a revision.

        Args:
            key: Where the range begins.
            end: Where it ends; ``b""``: it is one key.
            revision: The last one that is known. Where it is compacted, there is nothing to sleep for.
            frees: Whether only that ends it by which something becomes free; False: every change.

        Raises:
            Fault: The watch broke.
        """
        # Who is behind one key gets in when that is deleted. And a watch that begins anew, after another change, begins in
        # the past if the key goes meanwhile: etcd serves such watches every 100 ms.
        more = {"start_revision": str(revision + 1), "filters": [] if end else ["NOPUT"]}
        request = {"key": encoded(key), "range_end": encoded(end), **more}
        node = self._nodes[self.at]
        try:
            async with self._begin("watch", {"create_request": request}) as response:
                async for line in response.content:
                    message = json.loads(line)
                    result = message.get("result", {})
                    if (
                        "error" in message
                        or result.get("canceled")
                        or any(_frees(event) or not frees for event in result.get("events", ()))
                    ):
                        return
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Fault(FaultKind.UNANSWERED, f"{node.shown}: the watch broke: {error}") from None
        raise Fault(FaultKind.UNANSWERED, f"{node.shown}: the watch ended")

    async def close(self) -> None:
        """Close the connections: in one step, for a loop that runs no more of them."""
        if self._session is not None and self._session.connector is not None:
            closing = self._session.connector.close()
            self.forget()
            await closing
        self.forget()

    def forget(self) -> None:
        """Leave the connections as they are: in the child of a fork they are the parent's, at the end the system's."""
        self._over = True
        if self._session is not None:
            self._session.detach()
            self._session = None

    def __del__(self) -> None:
        self.forget()


_open: WeakSet[Gateway] = WeakSet()


last_steps.append(lambda: list(map(Gateway.forget, list(_open))))


def _frees(event: dict[str, Any]) -> bool:
    """Whether somebody may get in by it: not by one who comes and waits."""
    row = event["kv"]
    return event.get("type") == "DELETE" or row.get("version") != "1" or b"\x01" in decoded(row["key"])


def _read(node: Endpoint, status: int, text: str) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(text)
        error: Any = answer.get("error")
    except (ValueError, AttributeError):
        what = f"{node.shown}: no JSON gateway of etcd 3.4 or later at /v3 (HTTP {status})"
        # A proxy before etcd says so of what does not answer now.
        kind = FaultKind.UNANSWERED if status in range(500, 600) else FaultKind.UNSUPPORTED
        raise Fault(kind, what, maybe_applied=True, final=kind is FaultKind.UNSUPPORTED) from None
    if status == 200 and not error:
        return answer
    # Of a stream the error is an object.
    inner: Any = answer if isinstance(error, str) else error
    code = int(inner.get("code") or inner.get("grpc_code") or 0)
    if code == _NO_LEASE:
        raise Gone
    raise _Refused(code, str(inner.get("message") or error))


def _context(node: Endpoint) -> ssl.SSLContext:
    given = node.settings
    context = ssl.create_default_context(cafile=given.get("ssl_ca_certs"), capath=given.get("ssl_ca_path"))
    required = given.get("ssl_cert_reqs", "required")
    context.check_hostname = required == "required" and given.get("ssl_check_hostname", True)
    if required != "required":
        context.verify_mode = ssl.CERT_NONE if required == "none" else ssl.CERT_OPTIONAL
    if given.get("ssl_certfile"):
        context.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile"))
    return context
