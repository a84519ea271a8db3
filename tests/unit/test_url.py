"""From URLs to endpoints: every part, coded and plain, and never a secret in what is shown."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pawlock.errors import ConfigurationError
from pawlock.topology.endpoint import ClusterNodes, Sentinels
from pawlock.topology.url import parse_target, parse_url
from tests.support.refusal import case

GOOD: list[tuple[str, dict[str, Any], str]] = [
    ("redis://h", {"host": "h", "port": 6379}, "redis://h:6379/0"),
    ("redis://", {"host": "localhost", "port": 6379}, "redis://localhost:6379/0"),
    ("redis://h:1/3", {"host": "h", "port": 1, "db": 3}, "redis://h:1/3"),
    ("redis://h/", {"host": "h", "port": 6379}, "redis://h:6379/0"),
    ("redis://h?db=4", {"host": "h", "port": 6379, "db": 4}, "redis://h:6379/4"),
    ("  redis://h:65535  ", {"host": "h", "port": 65535}, "redis://h:65535/0"),
    ("redis://u:p@h", {"host": "h", "port": 6379, "username": "u", "password": "p"}, "redis://h:6379/0"),
    ("redis://:p@h", {"host": "h", "port": 6379, "password": "p"}, "redis://h:6379/0"),
    ("redis://u:@h", {"host": "h", "port": 6379, "username": "u", "password": ""}, "redis://h:6379/0"),
    (
        "redis://h?username=u&password=p",
        {"host": "h", "port": 6379, "username": "u", "password": "p"},
        "redis://h:6379/0",
    ),
    ("redis://:p%40s%3As%2Fw%23@h", {"host": "h", "port": 6379, "password": "p@s:s/w#"}, "redis://h:6379/0"),
    ("redis://[::1]:7", {"host": "::1", "port": 7}, "redis://[::1]:7/0"),
    ("redis://[fe80::1%25eth0]", {"host": "fe80::1%eth0", "port": 6379}, "redis://[fe80::1%eth0]:6379/0"),
    (
        "rediss://h?ssl_cert_reqs=none",
        {"host": "h", "port": 6379, "ssl_cert_reqs": "none"},
        "rediss://h:6379/0",
    ),
    (
        "rediss://h?ssl_check_hostname=false&ssl_ca_certs=/dev/null",
        {"host": "h", "port": 6379, "ssl_check_hostname": False, "ssl_ca_certs": "/dev/null"},
        "rediss://h:6379/0",
    ),
    ("unix:///run/r.sock", {"path": "/run/r.sock"}, "unix:///run/r.sock?db=0"),
    ("unix:///run/r.sock?db=2", {"path": "/run/r.sock", "db": 2}, "unix:///run/r.sock?db=2"),
    ("unix://:p@/run/r.sock", {"path": "/run/r.sock", "password": "p"}, "unix:///run/r.sock?db=0"),
    ("unix:///a%20b.sock", {"path": "/a b.sock"}, "unix:///a b.sock?db=0"),
]


def test_parts() -> None:
    for url, settings, shown in GOOD:
        with case(url, settings, shown):
            endpoint = parse_url(url)
            assert endpoint.settings == settings
            assert endpoint.shown == shown
            assert "password" not in repr(endpoint)


@given(st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable()))
def test_any_password_can_be_coded(password: str) -> None:
    endpoint = parse_url(f"redis://u:{quote(password, safe='')}@h:1")
    assert endpoint.settings["password"] == password
    assert endpoint.shown == "redis://h:1/0"


@given(st.text(max_size=40))
def test_any_text_is_an_endpoint_or_a_clear_error(text: str) -> None:
    for url in (text, f"redis://{text}", f"unix://{text}", f"redis://u:s3cret@{text}"):
        try:
            parse_url(url)
        except ConfigurationError as error:
            assert "s3cret" not in str(error)  # noqa: PT017 - either way is fine


SENTINELS: list[tuple[str, list[tuple[str, int]], str, dict[str, Any]]] = [
    ("redis+sentinel://h/m", [("h", 26379)], "m", {}),
    ("redis+sentinel://a:1,b,[::1]:2/m?db=3", [("a", 1), ("b", 26379), ("::1", 2)], "m", {"db": 3}),
    ("redis+sentinel://a/m/4", [("a", 26379)], "m", {"db": 4}),
    (
        "redis+sentinel://u:p%2F@a,b/m%20x",
        [("a", 26379), ("b", 26379)],
        "m x",
        {"username": "u", "password": "p/"},
    ),
]


def test_sentinels() -> None:
    for url, addresses, service, settings in SENTINELS:
        with case(url, addresses, service, settings):
            found = parse_target(url)
            assert isinstance(found, Sentinels)
            assert [(s.settings["host"], s.settings["port"]) for s in found.sentinels] == addresses
            assert found.service == service
            assert found.master.settings == settings
            assert all("password" not in sentinel.settings for sentinel in found.sentinels)
            assert not found.master.fixed
            assert "p/" not in repr(found)
            there = found.master.at("10.0.0.1", 7)
            assert there.settings == {**settings, "host": "10.0.0.1", "port": 7}
            assert there.shown == f"redis://10.0.0.1:7/{settings.get('db', 0)}"


def test_sentinels_have_a_login_of_their_own() -> None:
    found = parse_target(
        "rediss+sentinel://u:p@a,b/m?sentinel_username=su&sentinel_password=sp&ssl_ca_certs=/dev/null&client_name=n"
    )
    assert isinstance(found, Sentinels)
    for sentinel, host in zip(found.sentinels, "ab", strict=True):
        assert sentinel.scheme == "rediss"
        login = {"username": "su", "password": "sp", "ssl_ca_certs": "/dev/null"}
        assert sentinel.settings == {**login, "host": host, "port": 26379}
    master = {"username": "u", "password": "p", "ssl_ca_certs": "/dev/null", "client_name": "n"}
    assert found.master.settings == master
    assert found.master.scheme == "rediss"


def test_cluster() -> None:
    for scheme in ("redis", "rediss"):
        with case(scheme):
            found = parse_target(f"{scheme}+cluster://u:p@a,b:7?client_name=n")
            assert isinstance(found, ClusterNodes)
            assert found.shown == f"{scheme}+cluster://a:6379,b:7"
            common = {"username": "u", "password": "p", "client_name": "n"}
            assert [node.settings for node in found.nodes] == [
                {**common, "host": "a", "port": 6379},
                {**common, "host": "b", "port": 7},
            ]
            assert {(node.scheme, node.mode, node.fixed) for node in found.nodes} == {
                (scheme, "cluster", False)
            }


def test_several_nodes_are_not_one_server() -> None:
    for url in ("redis+sentinel://h/m", "redis+cluster://h"):
        with pytest.raises(ConfigurationError, match="not a single server"):
            parse_url(url)
