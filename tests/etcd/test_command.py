"""The command and the service on etcd."""

import json
import re
import subprocess
from typing import Any

import pawlock as library
from tests.etcd.rig import stand
from tests.faults.rig import Client
from tests.service.rig import Instance, Tokens
from tests.support.command import PAWLOCK, call, environment
from tests.support.etcd import Etcd

NS = "/v1/ns/pawlock"


def pawlock(etcd: Etcd, *arguments: str) -> tuple[int, str, str]:
    return call(*arguments, env=environment(PAWLOCK_URL=etcd.url))


def test_run_ls_show_force_release(etcd: Etcd) -> None:
    env = environment(PAWLOCK_URL=etcd.url)
    run = [*PAWLOCK, "run", "job", "--ttl", "4", "--", "sh", "-c", "echo $PAWLOCK_FENCE; exec sleep 30"]
    with subprocess.Popen(run, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        fence = int(held.stdout.readline())
        (row,) = json.loads(pawlock(etcd, "ls", "--json")[1])
        assert (row["name"], row["kind"], row["fence"]) == ("job", "lock", fence)
        assert f":{held.pid}/" in row["holder"]
        assert pawlock(etcd, "run", "job", "--timeout", "0", "--", "true")[0] != 0
        code, out, _ = pawlock(etcd, "force-release", "--yes", "--reason", "it hangs", "--json", "job")
        assert code == 0
        assert json.loads(out)["holder"] == row["holder"]
        _, err = held.communicate(timeout=20)
        assert "the lease of 'job' was lost" in err
    shown = json.loads(pawlock(etcd, "show", "--json", "job")[1])
    assert [(one["text"], one["outcome"]) for one in shown["audit"]] == [("it hangs", "released")]


def test_doctor(etcd: Etcd) -> None:
    code, out, err = pawlock(etcd, "doctor")
    assert (code, err) == (0, "")
    for line in (r"version +etcd 3\.", "quota +no alarm", "lock .* was acquired and released"):
        assert re.search(line, out), out


def test_doctor_of_what_is_no_etcd(etcd: Etcd) -> None:
    code, out, _ = call("doctor", env=environment(PAWLOCK_URL="etcd://127.0.0.1:1"))
    assert code != 0
    assert "reach" in out


def test_the_service(etcd: Etcd, client: Client, tmp_path: Any) -> None:
    service = Instance(etcd.url, Tokens(tmp_path))
    try:
        bodies: dict[str, dict[str, Any]] = {
            "lock": {}, "semaphore": {"permits": 2}, "rwlock_write": {}, "election": {},
        }  # fmt: skip
        for kind, body in bodies.items():
            first = service.acquire("n", kind, **body)
            assert first.status == 200, first.body
            told = {**body, "token": first.body["token"]}
            assert service.ask("POST", f"{NS}/{kind}/n/release", told).status == 200
        held = service.acquire("m")
        stand(etcd, 1, "m")
        assert client.lock("m").try_acquire() is None
        assert {one["name"] for one in service.ask("GET", f"{NS}/locks").body["locks"]} == {"m"}
        assert service.ask("POST", f"{NS}/lock/m/release", {"token": held.body["token"]}).status == 200
        refused = service.ask("POST", f"{NS}/latch/l/count-down", {"count": 1})
        assert refused.status == 501 or refused.body["code"] == "NOT_SUPPORTED", refused.body
    finally:
        service.end(9)


def test_the_list_of_all_namespaces(etcd: Etcd) -> None:
    with (
        library.connect(etcd.url) as client,
        library.connect(etcd.url, namespace="other") as other,
        client.lock("job", ttl=5),
        other.semaphore("pool", permits=2, ttl=5),
    ):
        rows = json.loads(pawlock(etcd, "ls", "--json", "--all-namespaces")[1])
    assert {(row["namespace"], row["name"], row["kind"]) for row in rows} == {
        ("pawlock", "job", "lock"),
        ("other", "pool", "semaphore"),
    }
