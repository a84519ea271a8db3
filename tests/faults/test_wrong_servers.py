"""Something else at the address than a server that can be used: told at once, and in words that name it."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import pawlock
from tests.faults.rig import Api, in_thread
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.fault

SOON = 2.0


class Stub:
    """Answers each line of requests as it is told to."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="stub")]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            self._threads.append(threading.Thread(target=self._serve, args=(sock,), name="stub-link"))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            while data := sock.recv(65536):
                reply = self._answer(data)
                if reply:
                    sock.sendall(reply)
        except OSError:
            pass
        finally:
            sock.close()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(5)


def redis_of(version: str) -> Callable[[bytes], bytes]:
    words = ("server", "redis", "version", version, "mode", "standalone", "role", "master")
    facts = "%5\r\n$5\r\nproto\r\n:3\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)

    def answer(data: bytes) -> bytes:
        return b"".join(
            facts.encode() if command == b"HELLO" else b"+OK\r\n"
            for command in re.findall(rb"\*\d+\r\n\$\d+\r\n([A-Za-z]+)", data)
        )

    return answer


def older(data: bytes) -> bytes:
    if b"INFO" in data:
        facts = "# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n"
        return f"${len(facts)}\r\n{facts}\r\n".encode()
    return b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n" * data.count(b"*")


def passes_on(sock: socket.socket, refusal: bytes) -> Callable[[bytes], bytes]:
    """A proxy that refuses ``HELLO``, and passes all else on to a server."""
    one_at_a_time = threading.Lock()

    def answer(data: bytes) -> bytes:
        if b"HELLO" in data:
            return refusal
        with one_at_a_time:
            sock.sendall(data)
            return sock.recv(65536)

    return answer


def http(_: bytes) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture
def stub() -> Iterator[Callable[[Callable[[bytes], bytes]], Stub]]:
    made: list[Stub] = []

    def make(answer: Callable[[bytes], bytes]) -> Stub:
        made.append(Stub(answer))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def refused(api: Api, url: str, error: type[pawlock.PawlockError]) -> str:
    """Try to acquire; the text of the error, which must come at once and must not hold the password."""
    client = api.connect(url)
    began = time.monotonic()
    with pytest.raises(error) as caught:
        client.lock().acquire(30)
    assert time.monotonic() - began < pace() * SOON
    assert "geheim" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("version", ["5.0.14", "6.0.16"])
def test_a_redis_too_old(version: str, stub: Callable[..., Stub], api: Api) -> None:
    text = refused(api, f"redis://:geheim@127.0.0.1:{stub(redis_of(version)).port}", pawlock.NotSupported)
    assert version in text
    assert "6.2" in text


def test_a_redis_without_hello(stub: Callable[..., Stub], api: Api) -> None:
    text = refused(api, f"redis://127.0.0.1:{stub(older).port}", pawlock.NotSupported)
    assert "5.0.14" in text
    assert "6.2" in text


@pytest.mark.parametrize(
    "words",
    [
        "NOPROTO unsupported protocol version",
        "NOPROTO sorry, this protocol version is not supported.",
        "ERR unknown command 'HELLO', with args beginning with: '3' ",
        "ERR command 'hello' is not supported",
    ],
)
def test_a_proxy_that_speaks_resp2_only(
    words: str, server: Server, stub: Callable[..., Stub], api: Api
) -> None:
    refusal = f"-{words}\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        client = api.connect(f"redis://127.0.0.1:{stub(passes_on(sock, refusal)).port}")
        lease = client.lock().acquire(2)
        assert client.inspect().fence == lease.fence
        lease.release()
        client.close()


def test_a_proxy_that_hangs_up_on_hello(stub: Callable[..., Stub], api: Api) -> None:
    """As twemproxy does, and a port that speaks TLS."""

    def hang_up(_: bytes) -> bytes:
        raise OSError("enough")

    client = api.connect(f"redis://127.0.0.1:{stub(hang_up).port}")
    with pytest.raises(pawlock.BackendUnavailable, match=r"rediss://; a proxy must answer HELLO"):
        client.lock(unavailable_after=0.2).acquire(5)


def test_an_http_server(stub: Callable[..., Stub], api: Api) -> None:
    text = refused(api, f"redis://:geheim@127.0.0.1:{stub(http).port}", pawlock.BackendUnavailable)
    assert "does not speak the Redis protocol" in text


def test_tls_against_a_plain_port(server: Server, api: Api) -> None:
    text = refused(api, f"rediss://:geheim@127.0.0.1:{server.port}", pawlock.BackendUnavailable)
    assert "TLS" in text


def test_tls_against_something_that_never_answers(stub: Callable[..., Stub], api: Api) -> None:
    silent = stub(lambda _: b"")
    client = api.connect(f"rediss://127.0.0.1:{silent.port}")
    with pytest.raises(pawlock.BackendUnavailable):
        client.lock(unavailable_after=0.2, ticket_ttl=0.6).acquire(5)


def test_nobody_listens(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    client = api.connect(f"redis://127.0.0.1:{port}")
    began = time.monotonic()
    with pytest.raises(pawlock.BackendUnavailable, match=r"refused|reached"):
        client.lock(unavailable_after=0.3).acquire(5)
    assert time.monotonic() - began < pace() * SOON
    with pytest.raises(pawlock.BackendUnavailable):
        client.lock().try_acquire()


def test_a_db_that_the_server_does_not_have(server: Server, api: Api) -> None:
    client = api.connect(f"redis://127.0.0.1:{server.port}/9999")
    with pytest.raises(pawlock.NotSupported, match=r"(?i)db index"):
        client.lock().acquire(2)


def test_a_server_that_says_ok_to_everything(stub: Callable[..., Stub], api: Api) -> None:
    polite = stub(lambda data: b"+OK\r\n" * data.count(b"*"))
    text = refused(api, f"redis://127.0.0.1:{polite.port}", pawlock.BackendUnavailable)
    assert "does not speak the Redis protocol" in text
    assert "object has no attribute" not in text


REFUSALS: dict[str, type[pawlock.PawlockError]] = {
    "LOADING Redis is loading the dataset in memory": pawlock.BackendUnavailable,
    "BUSY Redis is busy running a script": pawlock.BackendUnavailable,
    "MASTERDOWN Link with MASTER is down": pawlock.BackendUnavailable,
    "CLUSTERDOWN The cluster is down": pawlock.BackendUnavailable,
    "TRYAGAIN Multiple keys request during rehashing of slot": pawlock.BackendUnavailable,
    "READONLY You can't write against a read only replica.": pawlock.BackendReadOnly,
    "OOM command not allowed when used memory > 'maxmemory'.": pawlock.BackendOutOfMemory,
    "NOPERM this user has no permissions to run the 'hello' command": pawlock.BackendDenied,
    "ERR max number of clients reached": pawlock.BackendUnavailable,
}


def test_a_refusal_means_the_same_in_the_greeting(stub: Callable[..., Stub], api: Api) -> None:
    """Also a moment that passes is one there: it is not told at once as an error of a script."""
    told: dict[str, str] = {}

    def ask(words: str) -> None:
        busy = stub(lambda data: f"-{words}\r\n".encode() * data.count(b"*"))
        client = api.connect(f"redis://127.0.0.1:{busy.port}")
        try:
            client.lock(unavailable_after=0.2).acquire(5)
        except pawlock.PawlockError as error:
            told[words] = type(error).__name__

    for asking in [in_thread(partial(ask, words)) for words in REFUSALS]:
        asking.result(10)
    assert told == {words: error.__name__ for words, error in REFUSALS.items()}
