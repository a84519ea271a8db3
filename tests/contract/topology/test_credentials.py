"""Logging in: by arguments, by a provider whose answer changes, and again when the server forgot us."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from functools import partial

import pytest

import pawlock
from tests.faults.rig import Api, Client, Lease, until
from tests.support.servers import Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with a user whose password changes."""
    with Server("valkey") as server:
        server.command("ACL", "SETUSER", "worker", "on", ">first-s3cret", "~*", "&*", "+@all")
        server.command("ACL", "SETUSER", "default", "off", "nopass", "resetkeys")
        yield server


class Provider:
    """redis-py's protocol, sync alone."""

    def __init__(self, *passwords: str) -> None:
        self.passwords = list(passwords)
        self.asked = 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        return "worker", self.passwords[0] if len(self.passwords) == 1 else self.passwords.pop(0)


class AsyncProvider(Provider):
    """The same, asked without blocking in asyncio."""

    def __init__(self, *passwords: str) -> None:
        super().__init__(*passwords)
        self.awaited = 0

    async def get_credentials_async(self) -> tuple[str, str]:
        self.awaited += 1
        return self.get_credentials()


class Broken(Provider):
    """The secret store is down, and says more than it should."""

    def get_credentials(self) -> tuple[str, str]:
        raise OSError("no store at https://vault/?token=s3cret")


def admin(server: Server, *words: str) -> object:
    from tests.support.resp import Wire

    with Wire(server.address, timeout=5.0) as wire:
        wire.command("AUTH", "worker", words[0])
        return wire.command(*words[1:])


def forget_login(api: Api, client: Client) -> None:
    """Make the server take the client's connection for one that never logged in."""
    if api.is_async:

        def reset() -> None:
            client.raw._engine().runtime._mux._transport.write(b"*1\r\n$5\r\nRESET\r\n")

        api.run(reset)
    else:
        client.raw._runtime._local.link._sock.sendall(b"*1\r\n$5\r\nRESET\r\n")


def test_username_and_password_as_arguments(server: Server, api: Api) -> None:
    client = api.connect(server.url, username="worker", password="first-s3cret")
    client.lock().acquire().release()
    assert "s3cret" not in repr(client.raw) + repr(client.raw._origin) + repr(vars(client.raw))
    api.connect(server.url.replace("//", "//worker@"), password="first-s3cret").lock().acquire().release()


def test_a_wrong_password_is_told_without_it(
    server: Server, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = api.connect(server.url, username="worker", password="wrong-s3cret")
    with pytest.raises(pawlock.BackendDenied) as caught:
        client.lock().acquire()
    told = [*traceback.format_exception(caught.value), repr(vars(caught.value)), caplog.text]
    assert "wrong-s3cret" not in "".join(told)


@pytest.mark.parametrize("kind", [Provider, AsyncProvider])
def test_a_provider_is_asked_for_each_connection(server: Server, api: Api, kind: type[Provider]) -> None:
    """The password changes while a lease is held: it stays held, and the next connection has the new one."""
    provider = kind("first-s3cret")
    client = api.connect(server.url, credential_provider=provider)
    lease = client.lock("n", ttl=3.0).acquire()
    admin(server, "first-s3cret", "ACL", "SETUSER", "worker", "resetpass", ">second-s3cret")
    provider.passwords = ["second-s3cret"]
    asked = provider.asked
    admin(server, "second-s3cret", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    admin(server, "second-s3cret", "CLIENT", "KILL", "TYPE", "pubsub")
    until(lambda: provider.asked > asked, what="a new connection")
    until(lambda: client.counter("renewed") > 0, what="a renewal with the new password")
    assert lease.state == "held"
    lease.release()
    if isinstance(provider, AsyncProvider):
        assert bool(provider.awaited) is api.is_async


def test_a_server_that_forgot_the_login_is_told_again(server: Server, api: Api) -> None:
    provider = Provider("first-s3cret")
    client = api.connect(server.url, credential_provider=provider)
    lease = client.lock("n").acquire()
    asked = provider.asked
    forget_login(api, client)
    lease.release()
    assert provider.asked == asked + 1
    client.lock("n").acquire().release()


def test_a_provider_that_lags_behind_is_asked_once_more(server: Server, api: Api) -> None:
    """The server knows the new password a moment before the store does."""
    provider = Provider("old-s3cret", "first-s3cret")
    client = api.connect(server.url, credential_provider=provider)
    client.lock().acquire().release()
    assert provider.asked == 2


def test_a_provider_that_stays_wrong_is_refused(server: Server, api: Api) -> None:
    client = api.connect(server.url, credential_provider=Provider("old-s3cret"))
    with pytest.raises(pawlock.BackendDenied) as caught:
        client.lock().acquire()
    assert "s3cret" not in "".join(traceback.format_exception(caught.value)).replace("first-s3cret", "")


def test_a_provider_that_fails_keeps_its_words(server: Server, api: Api) -> None:
    client = api.connect(server.url, credential_provider=Broken("x"))
    with pytest.raises(pawlock.BackendUnavailable, match="credential provider failed: OSError") as caught:
        client.lock("n", unavailable_after=0.1).acquire()
    assert "token" not in str(caught.value)
    assert "vault" not in repr(vars(caught.value))


def test_a_lease_that_a_changed_password_ends_says_so(server: Server, api: Api) -> None:
    """With the words of the server, also as a part of several; and without the password."""
    client = api.connect(server.url, username="worker", password="first-s3cret")
    leases = [
        client.lock("n", ttl=0.9).acquire(),
        Lease(api, api.run(lambda: client.raw.semaphore("n", permits=2, ttl=0.9).acquire())),
        Lease(api, api.run(lambda: client.raw.multi_lock(["a", "b"], ttl=0.9).acquire())),
    ]
    admin(server, "first-s3cret", "ACL", "SETUSER", "worker", "resetpass", ">second-s3cret")
    admin(server, "second-s3cret", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    admin(server, "second-s3cret", "CLIENT", "KILL", "TYPE", "pubsub")
    for lease in leases:
        until(partial(getattr, lease, "reason"), what="the loss")
        with pytest.raises(pawlock.LeaseLost) as caught:
            lease.check()
        assert caught.value.reason == "unreachable"
        assert "WRONGPASS" not in str(caught.value)
        assert "WRONGPASS" in "".join(caught.value.__notes__)
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))
