"""Addresses and credentials that can never work are refused where they are given, and nothing is sent."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio

import pawlock
from tests.contract.test_bad_input import CONNECTS, Listener, listener
from tests.support.refusal import case, refused
from tests.support.servers import Server

__all__ = ["listener"]


BAD_URLS: list[tuple[object, str]] = [
    ("", "empty"),
    ("   ", "empty"),
    ("localhost:6379", "scheme"),
    ("localhost", "no scheme"),
    ("http://localhost:6379", "unknown scheme 'http'"),
    ("memcached://h", "unknown scheme 'memcached'"),
    ("redis://h:99999", "port"),
    ("redis://h:0", "port of the URL must be a number from 1 to 65535"),
    ("redis://h:-1", "port"),
    ("redis://h:abc", "port"),
    ("redis://h/abc", "db of the URL must be a number, as in redis://localhost:6379/0, got 'abc'"),
    ("redis://h/-1", "db of the URL must be a number, as in redis://localhost:6379/0, got '-1'"),
    ("redis://h/0/1", "db of the URL must be a number, as in redis://localhost:6379/0, got '0/1'"),
    ("redis://h?db=x", "db of the URL must be a number, as in redis://localhost:6379/0, got 'x'"),
    (
        "redis://h?tiemout=3",
        "unknown option 'tiemout' in the URL; known: client_name, db, password, username",
    ),
    ("redis://h?pasword=x", "unknown option 'pasword' in the URL; did you mean password?"),
    ("rediss://h?ssl_cert_req=none", "did you mean ssl_cert_reqs?"),
    ("redis://h?db=1&db=2", "twice"),
    ("redis://h?ssl_ca_certs=x", "unknown option 'ssl_ca_certs' in the URL; it needs rediss://"),
    ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs must be one of required, optional, none, got 'maybe'"),
    ("rediss://h?ssl_check_hostname=maybe", "ssl_check_hostname must be true or false, got 'maybe'"),
    ("redis://:pa#ss@h", "#"),
    ("redis://[::1", "invalid host"),
    ("redis://a,b", "has several hosts"),
    ("redis+sentinel://h", "has no service name"),
    ("redis+sentinel://h/", "has no service name"),
    ("redis+sentinel:///mymaster", "without a host"),
    ("redis+sentinel://a,,b/m", "without a host"),
    ("redis+sentinel://a,a/m", "names a:26379 twice"),
    ("redis+sentinel://a,a:26379/m", "names a:26379 twice"),
    ("redis+sentinel://a,b:0/m", "port of the URL must be a number from 1 to 65535"),
    ("redis+sentinel://a,b:x/m", "port of the URL must be a number"),
    ("redis+sentinel://a,redis://b/m", "scheme inside"),
    ("redis+sentinel://a/m/x", "db of the URL must be a number, as in redis://localhost:6379/0, got 'x'"),
    ("redis+sentinel://a/m?db=x", "db of the URL must be a number, as in redis://localhost:6379/0, got 'x'"),
    ("redis+sentinel://a/m?service=x", "unknown option 'service'"),
    ("redis+sentinel://a/m?ssl_cert_reqs=none", "unknown option 'ssl_cert_reqs'"),
    (
        "rediss+sentinel://a/m?ssl_cert_reqs=some",
        "ssl_cert_reqs must be one of required, optional, none, got 'some'",
    ),
    ("redis://a?sentinel_password=x", "unknown option 'sentinel_password'"),
    ("memory://", "not a server in this process"),
    ("memory://1?x=y", "not a server in this process"),
    ("redis+cluster://", "without a host"),
    ("redis+cluster://a,a", "names a:6379 twice"),
    ("redis+cluster://a,rediss://b", "scheme inside"),
    ("redis+cluster://a/1", "only db 0"),
    ("redis+cluster://a?db=3", "only db 0"),
    ("redis+cluster://a/x", "db of the URL must be a number, as in redis://localhost:6379/0, got 'x'"),
    ("redis+cluster://a:99999", "port of the URL must be a number"),
    ("redis+cluster://a,:1", "without a host"),
    ("unix://", "path of the socket"),
    ("embedded:", "embedded://"),
    ("embedded://relative", "absolute path"),
    ("embedded:///a?x=1", "no options"),
    (7, "int"),
    (b"redis://h", "bytes"),
    (object(), "object"),
]


def test_urls() -> None:
    for target, word in BAD_URLS:
        for connect in CONNECTS:
            with case(target):
                text = refused(lambda: connect(target), word)
                assert "pa#ss" not in text


class Rotating:
    """A provider of credentials."""

    def get_credentials(self) -> tuple[str, str]:
        return "user", "s3cret"


BAD_CREDENTIALS: list[tuple[str | None, dict[str, Any], str]] = [
    (None, {"username": 7}, "username must be a str, got int"),
    (None, {"password": b"s3cret"}, "password must be a str, got bytes"),
    (None, {"credential_provider": Rotating}, "get_credentials()"),
    (None, {"credential_provider": ("user", "s3cret")}, "get_credentials()"),
    (None, {"credential_provider": Rotating(), "password": "s3cret"}, "not both"),
    (None, {"credential_provider": Rotating(), "username": "u"}, "not both"),
    ("redis://u:s3cret@h", {"password": "s3cret"}, "password given both"),
    ("redis://u@h", {"username": "u"}, "username given both"),
    ("redis://u:s3cret@h", {"credential_provider": Rotating()}, "given both"),
    ("redis+sentinel://:s3cret@h/m", {"password": "x"}, "password given both"),
    ("redis+cluster://:s3cret@h", {"password": "x"}, "password given both"),
    ("embedded://", {"password": "s3cret"}, "takes no credentials"),
]


def test_credentials(listener: Listener) -> None:
    user = redis.Redis(host="127.0.0.1", port=listener.port)
    for connect in CONNECTS:
        for url, given, word in BAD_CREDENTIALS:
            with case(url, given):
                text = refused(lambda: connect(url or listener.url, **given), word)
                assert "s3cret" not in text
        assert "s3cret" not in refused(lambda: connect(user, password="s3cret"), "has its own credentials")


def test_a_password_is_never_in_the_text() -> None:
    for url in (
        "redis://u:s3cret@h:99999",
        "redis://u:s3cret@h/x",
        "redis://u:s3cret@h?o=1",
        "foo://u:s3cret@h",
    ):
        for connect in CONNECTS:
            assert "s3cret" not in refused(lambda: connect(url), "")


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value, word in (
        ("PAWLOCK_URL", "", "PAWLOCK_URL is empty"),
        ("PAWLOCK_URL", "  ", "PAWLOCK_URL is empty"),
        ("PAWLOCK_URL", "nonsense", "no scheme"),
        (
            "PAWLOCK_TTL",
            "30x",
            "PAWLOCK_TTL must be seconds, or a number with ms, s, m, h, d or w, got '30x'",
        ),
        ("PAWLOCK_TTL", "nan", "d or w, got 'nan'"),
        ("PAWLOCK_TTL", "0", "PAWLOCK_TTL must be at least 0.05 s, got 0"),
        (
            "PAWLOCK_TIMEOUT",
            "soon",
            "PAWLOCK_TIMEOUT must be seconds, or a number with ms, s, m, h, d or w, got",
        ),
        ("PAWLOCK_TIMEOUT", "-1", "d or w, got '-1'"),
        ("PAWLOCK_NAMESPACE", "x" * 201, "at most 200 bytes"),
    ):
        with case(variable, value), monkeypatch.context() as environment:
            environment.setenv("PAWLOCK_URL", "redis://127.0.0.1:1")
            environment.setenv(variable, value)
            for connect in CONNECTS:
                assert variable in refused(connect, word), "the text says where to mend it"


def test_an_ipv6_address_and_a_coded_password(valkey: Server) -> None:
    """Both reach the server as they were meant."""
    with Server("valkey", args=["--requirepass", "p@ss:w/rd#%?ü", "--bind", "127.0.0.1", "::1"]) as server:
        for host in ("127.0.0.1", "[::1]"):
            with (
                pawlock.connect(f"redis://:p%40ss%3Aw%2Frd%23%25%3F%C3%BC@{host}:{server.port}/0") as client,
                client.lock("x"),
            ):
                pass


def test_things_of_redis_that_are_no_clients(listener: Listener) -> None:
    for module in (redis, redis.asyncio):
        user = module.Redis(host="127.0.0.1", port=listener.port)
        things: dict[str, object] = {
            "Pipeline": user.pipeline(),
            "PubSub": user.pubsub(),
            "ConnectionPool": user.connection_pool,
            "Lock": user.lock("x"),
        }
        for kind, thing in things.items():
            for connect in CONNECTS:
                refused(lambda: connect(thing), kind)
