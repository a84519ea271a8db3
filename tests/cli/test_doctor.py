"""`pawlock doctor`: what it finds on real servers, what it exits with, and that a shy server is not blamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.command import ROOT, call
from tests.support.groups import SentinelGroup
from tests.support.servers import Server


def doctor(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    return call("doctor", *arguments)


def reports(url: str) -> list[tuple[str, dict[str, dict[str, Any]]]]:
    """What it finds, by check, of each server."""
    _, out, _ = doctor(url, "--json")
    return [
        (report["server"], {finding["check"]: finding for finding in report["findings"]})
        for report in json.loads(out)
    ]


def findings(url: str) -> dict[str, dict[str, Any]]:
    """What it finds at the first server, by check."""
    return reports(url)[0][1]


def test_a_server_that_keeps_every_promise() -> None:
    with Server("valkey", persist=True) as server:
        code, out, _ = doctor(server.url)
    assert code == 0
    assert "✓ eviction" in out
    assert "\033" not in out


def test_severities_and_exit_codes() -> None:
    with Server("valkey") as server:
        code, out, _ = doctor(server.url)
        assert code == 1
        assert "! persistence" in out
        assert "fix: appendonly yes" in out
        server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        server.command("CONFIG", "SET", "maxmemory", "100mb")
        code, out, _ = doctor(server.url)
        assert code == 2
        assert "✗ eviction" in out
        assert findings(server.url)["eviction"]["promise"] == "mutual exclusion"


def test_a_server_that_forbids_its_questions_is_unknown_not_at_fault() -> None:
    with Server("valkey") as server:
        server.command(
            "ACL", "SETUSER", "shy", "on", ">secret", "~*", "&*", "+@all", "-info", "-config", "-acl"
        )
        url = server.url.replace("redis://", "redis://shy:secret@")
        code, out, err = doctor(url)
        found = findings(url)
    assert code == 0
    assert {
        found[check]["severity"] for check in ("version", "role", "eviction", "persistence", "rights")
    } == {"unknown"}
    assert "secret" not in out + err


def test_an_account_that_can_take_no_lock_is_an_error_whatever_it_may_be_asked() -> None:
    """One prefix and everything but what is dangerous, as accounts are made: helper keys begin with a brace."""
    with Server("valkey") as server:
        server.command(
            "ACL", "SETUSER", "app", *["on", ">secret", "~pawlock:*", "&*", "+@all", "-@dangerous"]
        )
        code, out, _ = doctor(server.url.replace("redis://", "redis://app:secret@"))
    assert code == 2
    assert "✗ lock" in out
    assert "pawlock doctor --acl" in out


@pytest.mark.parametrize("holder", ["somebody@else:1/x", "not a token"])
def test_a_lock_that_could_not_be_tried_is_a_warning(holder: str) -> None:
    with Server("valkey", persist=True) as server:
        server.command("SET", "pawlock:pawlock-check", holder)
        code, out, _ = doctor(server.url)
    assert code == 1, out
    assert "! lock" in out


@pytest.mark.parametrize(("without", "code", "rights"), [("info", 0, "unknown"), ("evalsha", 2, "error")])
def test_a_right_that_only_tells_is_no_failure_where_rights_can_be_asked_for(
    without: str, code: int, rights: str
) -> None:
    with Server("valkey", persist=True) as server:
        server.command("ACL", "SETUSER", "half", "on", ">secret", "~*", "&*", "+@all", f"-{without}")
        url = server.url.replace("redis://", "redis://half:secret@")
        assert doctor(url)[0] == code
        found = findings(url)["rights"]
    assert found["severity"] == rights
    assert without.upper() in found["text"]


def test_a_user_without_messages_is_told_the_cost() -> None:
    with Server("valkey") as server:
        server.command("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all")
        found = findings(server.url.replace("redis://", "redis://deaf:secret@"))
    assert found["wake-ups"]["severity"] == "warning"
    assert "PUBLISH" in found["wake-ups"]["fix"]
    assert found["rights"]["severity"] == "ok", "it can do without"


def test_a_replica_and_nobody_at_all() -> None:
    with (
        Server("valkey") as master,
        Server("valkey", args=["--replicaof", "127.0.0.1", str(master.port)]) as replica,
    ):
        assert findings(replica.url)["role"]["severity"] == "error"
        assert findings(master.url)["replication"]["severity"] == "note"
    code, out, _ = doctor("redis://127.0.0.1:1")
    assert code == 2
    assert "✗ reach" in out


def test_several_masters_are_looked_at_one_by_one_and_together() -> None:
    with Server("valkey", persist=True) as first, Server("valkey", persist=True) as second:
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port},127.0.0.1:1"
        code, out, _ = doctor(f"redlock://{hosts}", "--json")
        twice = reports(f"redlock://127.0.0.1:{first.port},localhost:{first.port}")[-1][1]
    assert code == 2
    assert len(json.loads(out)) == 4
    together = {finding["check"]: finding for finding in json.loads(out)[-1]["findings"]}
    assert "2 of 3" in together["majority"]["text"]
    assert together["clocks"]["severity"] == together["independence"]["severity"] == "ok"
    assert (twice["number"]["severity"], twice["independence"]["severity"]) == ("warning", "error")


def test_sentinels_are_asked_for_their_master() -> None:
    with SentinelGroup(sentinels=1) as group:
        sentinels, master = reports(group.url)
        (unknown,) = reports(group.url.replace("mymaster", "nobody"))
        (sentinel,) = reports(group.sentinels[0].url)
    assert {finding["severity"] for finding in sentinels[1].values()} == {"ok"}
    assert master[0] == group.servers[0].url
    assert [finding["severity"] for finding in unknown[1].values()] == ["error"]
    assert "No such master with that name" in str(unknown[1])
    role = sentinel[1]["role"]
    assert (role["text"], role["fix"]) == ("a Sentinel", "use redis+sentinel://host,host,host/service")


def test_a_node_of_a_cluster_is_no_plain_server() -> None:
    with Server("valkey", unix=False, args=["--cluster-enabled", "yes"]) as node:
        plain, one = findings(node.url), findings(node.url.replace("redis://", "redis+cluster://")[:-2])
    assert "use redis+cluster://" in plain["role"]["fix"]
    assert "state is fail" in one["role"]["text"]


def test_wrong_usage() -> None:
    for wrong in (["ftp://x"], ["--ttl", "0"], ["--ttl", "x"], ["a", "b"]):
        code, _, err = doctor(*wrong)
        assert code == 64, wrong
        assert err.startswith("pawlock: "), wrong


def test_the_rules_it_prints_are_the_file_in_the_package() -> None:
    code, out, _ = doctor("--acl")
    assert code == 0
    assert out == (ROOT / "src/pawlock/pawlock.acl").read_text()
