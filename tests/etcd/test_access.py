"""Users, roles, tokens and TLS: who may lock, and what is said to who may not."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pawlock
from tests.conformance.matrix import certificate
from tests.etcd.rig import AGREED, queue, slow, stand
from tests.faults.rig import Api, Client, until
from tests.support.etcd import Etcd
from tests.support.etcd_wire import EtcdWire, b64, prefix_end

PREFIXES = ("pawlock:", "{pawlock:", "{pawlock}:")
"""What a user of the default namespace needs: the keys of its locks, of its permits, and of its notes."""


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


def permit_all(wire: EtcdWire) -> None:
    """Have passwords asked for: of `root`, of `locker`, who may lock, and of `guest`, who may nothing."""
    for name in ("root", "locker", "guest"):
        wire.call("auth/user/add", name=name, password=f"of {name}")
    for role in ("root", "locks"):
        wire.call("auth/role/add", name=role)
    for prefix in PREFIXES:
        raw = prefix.encode()
        permission = {"permType": "READWRITE", "key": b64(raw), "range_end": b64(prefix_end(raw))}
        wire.call("auth/role/grant", name="locks", perm=permission)
    wire.call("auth/user/grant", user="root", role="root")
    wire.call("auth/user/grant", user="locker", role="locks")
    wire.call("auth/enable")


def signed(folder: Path, seconds: int) -> str:
    """Have tokens be signed, and good for so many seconds."""
    private, public = folder / "token.pem", folder / "token.pub"
    for words in (["genrsa", "-out", private, "2048"], ["rsa", "-in", private, "-pubout", "-out", public]):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
    return f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl={seconds}s"


@pytest.fixture
def root() -> Iterator[tuple[Etcd, EtcdWire]]:
    """A member that asks for passwords, and `root`'s connection to it."""
    with Etcd() as etcd, etcd.wire() as wire:
        permit_all(wire)
        wire.login("root", "of root")
        yield etcd, wire


@pytest.fixture
def guarded(root: tuple[Etcd, EtcdWire]) -> Etcd:
    return root[0]


def connected(api: Api, etcd: Etcd, name: str, **options: Any) -> Client:
    return api.connect(etcd.url_of(*etcd.members, user=f"{name}:of%20{name}"), **options)


def test_a_user_with_the_rights_locks(api: Api, guarded: Etcd) -> None:
    client = connected(api, guarded, "locker")
    lease = client.lock(ttl=20).acquire()
    assert connected(api, guarded, "locker").lock().try_acquire() is None
    lease.extend(30)
    lease.release()
    permit = client._api.run(lambda: client.raw.semaphore("s", permits=2).acquire())
    client._api.run(permit.release)
    assert not client._api.run(client.raw.locks)


@pytest.mark.parametrize("user", ["", "locker:wrong@", "nobody:here@", "guest:of%20guest@"])
def test_who_may_not_is_told(api: Api, guarded: Etcd, user: str) -> None:
    """No user, a wrong password, an unknown one, one without the rights: at once, and never as held by somebody else."""
    client = api.connect(guarded.url.replace("//", f"//{user}"), unavailable_after=20)
    began = time.monotonic()
    with pytest.raises(pawlock.BackendDenied) as denied:
        client.lock().acquire(20)
    assert time.monotonic() - began < slow(3)
    assert "wrong" not in str(denied.value)
    with pytest.raises(pawlock.BackendDenied):
        client.lock().try_acquire()


def test_a_user_of_another_namespace_is_denied(api: Api, guarded: Etcd) -> None:
    with pytest.raises(pawlock.BackendDenied):
        connected(api, guarded, "locker", namespace="other").lock().acquire(5)


@pytest.mark.slow
def test_a_token_that_the_server_forgot(api: Api, guarded: Etcd) -> None:
    """A member keeps the tokens of logins in its memory: after its restart each client logs in again."""
    client, rival = connected(api, guarded, "locker"), connected(api, guarded, "locker")
    lease = client.lock(ttl=6).acquire()
    waiting = rival.lock(ttl=6).start(60)
    time.sleep(0.5)
    guarded.members[0].kill()
    guarded.start()
    time.sleep(6)
    lease.check()
    assert client.lock("another").try_acquire() is not None
    lease.release()
    assert waiting.result(slow(3)).fence > lease.fence


@pytest.mark.slow
def test_users_and_roles_that_change_meanwhile(api: Api, root: tuple[Etcd, EtcdWire]) -> None:
    """Each such change makes every token old: a lease outlives it, and so does a wait."""
    guarded, wire = root
    client, rival = connected(api, guarded, "locker"), connected(api, guarded, "locker")
    lease = client.lock(ttl=3).acquire()
    waiting = rival.lock(ttl=3).start(60)
    time.sleep(0.5)
    wire.call("auth/user/add", name="new", password="new")
    time.sleep(4)
    lease.check()
    client.lock("another").acquire(5).release()
    lease.release()
    assert waiting.result(slow(3)).fence > lease.fence


def test_rights_that_are_taken_away(api: Api, root: tuple[Etcd, EtcdWire]) -> None:
    guarded, wire = root
    client = connected(api, guarded, "locker")
    told: list[Any] = []
    lease = client.lock(ttl=3, on_lost=told.append).acquire()
    wire.call("auth/user/revoke", name="locker", role="locks")
    with pytest.raises(pawlock.BackendDenied):
        client.lock("another").acquire(5)
    # Whether it may be kept alive without the rights is etcd's to say; if not, its owner is told in time.
    until(lambda: told or lease.remaining() > 0, what="it is held or lost")
    wire.call("auth/user/grant", user="locker", role="locks")
    client.lock("another").acquire(10).release()


def test_a_user_where_none_is_asked_for(api: Api, etcd: Etcd) -> None:
    client = api.connect(etcd.url.replace("//", "//locker:secret@"))
    with pytest.raises(pawlock.BackendError, match="authentication is not enabled") as refused:
        client.lock().acquire(5)
    assert "secret" not in str(refused.value)


@pytest.mark.slow
@needs_openssl
def test_signed_tokens_that_expire(api: Api, tmp_path: Path) -> None:
    """They are good for some seconds only, and for no longer than users and roles stay as they are."""
    with Etcd(args=["--auth-token", signed(tmp_path, seconds=2)]) as etcd, etcd.wire() as wire:
        permit_all(wire)
        wire.login("root", "of root")
        client, rival = connected(api, etcd, "locker"), connected(api, etcd, "locker")
        lease = client.lock(ttl=3).acquire()
        waiting = rival.lock(ttl=3).start(60)
        time.sleep(6)
        lease.check()
        wire.login("root", "of root")
        wire.call("auth/user/add", name="new", password="new")
        time.sleep(4)
        lease.check()
        client.lock("another").acquire(5).release()
        lease.release()
        assert waiting.result(slow(3)).fence > lease.fence


@pytest.mark.slow
@needs_openssl
def test_a_change_of_users_under_a_signed_token(api: Api, tmp_path: Path) -> None:
    with Etcd(args=["--auth-token", signed(tmp_path, seconds=600)]) as etcd, etcd.wire() as wire:
        permit_all(wire)
        client = connected(api, etcd, "locker")
        lease = client.lock(ttl=3).acquire()
        wire.login("root", "of root")
        wire.call("auth/user/add", name="new", password="new")
        client.lock("another").acquire(5).release()
        time.sleep(4)
        lease.check()
        lease.release()


def test_the_password_is_shown_nowhere(guarded: Etcd) -> None:
    with pawlock.connect(guarded.url.replace("//", "//locker:of%20locker@")) as client:
        assert "of" not in repr(client)
        assert "locker" not in repr(client).replace("pawlock", "")


@needs_openssl
def test_tls(api: Api, tmp_path: Path) -> None:
    with Etcd(tls=certificate(tmp_path)) as etcd:
        client, rival = api.connect(etcd.url), api.connect(etcd.url)
        lease = client.lock(ttl=2).acquire()
        waiting = rival.lock(ttl=20).start(30)
        stand(etcd, 2)
        time.sleep(2.5)
        lease.check()
        lease.release()
        assert waiting.result(slow(2)).fence > lease.fence
        # An unknown authority, and no TLS at all.
        for url in (etcd.url.partition("?")[0], etcd.url.partition("?")[0].replace("etcds", "etcd")):
            with pytest.raises(pawlock.BackendUnavailable):
                api.connect(url, unavailable_after=0.5).lock().acquire(5)
        trusting = etcd.url.partition("?")[0] + "?ssl_cert_reqs=none"
        api.connect(trusting).lock("m").acquire(slow(5)).release()


@pytest.mark.slow
def test_who_lost_its_rights_loses_its_lease_in_time(api: Api, root: tuple[Etcd, EtcdWire]) -> None:
    guarded, wire = root
    client = connected(api, guarded, "locker")
    lease = client.lock(ttl=3).acquire()
    wire.call("auth/user/delete", name="locker")
    until(lambda: lease.state == "lost", 10, "it is lost")
    rival = connected(api, guarded, "root").lock(ttl=20).acquire(slow(3 + AGREED))
    assert rival.fence > lease.fence
    assert queue(guarded) in {0, 1}
