"""What deploy/ says is true: the options and paths exist, probes answer, nothing is written, and the end is in time."""

from __future__ import annotations

import configparser
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.service.rig import Tokens
from tests.support.command import options
from tests.support.pace import pace
from tests.support.servers import Server, free_port

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
GRACEFUL = 10
"""Seconds that requests under way get when the port has been closed; see the service's runner."""
_yaml: Any = importlib.import_module("yaml")


def options_of(command: Sequence[str]) -> dict[str, Any]:
    """What `pawlock serve` makes of its arguments; it must know them all."""
    return options("serve", command)


def dockerfile() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word.isupper():
            found.setdefault(word, []).append(rest)
    return found


def manifests() -> dict[str, Any]:
    text = (DEPLOY / "kubernetes" / "pawlock.yaml").read_text()
    return {one["kind"]: one for one in _yaml.safe_load_all(text)}


def container() -> dict[str, Any]:
    (one,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(one)


def arguments() -> list[str]:
    """What the container runs: its manifest says nothing of its own, so what the image says counts."""
    assert not {"command", "args"} & container().keys()
    image = dockerfile()
    assert json.loads(image["ENTRYPOINT"][-1])[1:] == ["serve"]
    return list(json.loads(image["CMD"][-1]))


def unit() -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "pawlock.service")
    return dict(parser["Service"])


def test_the_image_runs_what_exists_and_not_as_root() -> None:
    image = dockerfile()
    user, _, group = image["USER"][-1].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    for base in image["FROM"]:
        version = re.match(r"python:3\.(\d+)", base)
        assert version is not None
        assert int(version[1]) >= 11
    given = options_of(arguments())
    assert given["port"] == int(image["EXPOSE"][-1])
    assert given["host"] == "0.0.0.0"
    assert given["certificate"]
    assert given["tokens"]
    assert image["STOPSIGNAL"] == ["SIGTERM"]


def test_the_manifests_fit_together_and_the_image() -> None:
    found = manifests()
    pod = found["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    for selector in (
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    one, given = container(), options_of(arguments())
    (port,) = one["ports"]
    assert port["containerPort"] == given["port"]
    (outside,) = found["Service"]["spec"]["ports"]
    assert outside["targetPort"] == port["name"]
    mounts = {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["spec"]["volumes"]}
    for file in (given["tokens"], given["certificate"], given["key"]):
        assert str(Path(file).parent) in mounts.values()
    assert all(mount["readOnly"] for mount in one["volumeMounts"])


def test_the_pod_may_do_nothing_beyond_its_work() -> None:
    spec = manifests()["Deployment"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == int(dockerfile()["USER"][-1].partition(":")[0])
    assert spec["automountServiceAccountToken"] is False
    own = container()["securityContext"]
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}


def test_nobody_is_sent_to_an_instance_that_ends_and_it_is_given_the_time() -> None:
    found, delay = manifests()["Deployment"]["spec"], options_of(arguments())["drain_delay"]
    ready = container()["readinessProbe"]
    assert delay > ready["periodSeconds"] * ready["failureThreshold"] + ready.get("timeoutSeconds", 1)
    assert found["template"]["spec"]["terminationGracePeriodSeconds"] > delay + GRACEFUL
    assert found["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert manifests()["PodDisruptionBudget"]["spec"]["minAvailable"] < found["replicas"]


def test_the_unit_runs_what_exists_and_can_read_its_tokens() -> None:
    service = unit()
    _, verb, *rest = shlex.split(service["ExecStart"])
    assert verb == "serve"
    given = options_of(rest)
    assert float(service["TimeoutStopSec"]) > given["drain_delay"] + GRACEFUL
    # Its user is made when it starts, so nothing below /etc can belong to it.
    assert service["DynamicUser"] == "yes"
    name = service["LoadCredential"].partition(":")[0]
    assert str(given["tokens"]) == f"${{CREDENTIALS_DIRECTORY}}/{name}"


def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze on PATH")
    text = (DEPLOY / "pawlock.service").read_text().replace("/opt/pawlock/bin/pawlock", sys.executable)
    (tmp_path / "pawlock.service").write_text(text)
    done = subprocess.run(
        [program, "verify", "--man=no", str(tmp_path / "pawlock.service")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if "pawlock.service" in line]
    assert told == []


# A container in small: a process tree, a host name and a file system that cannot be written, all of its own.
INSIDE = """
hostname pawlock-0
mount --bind / /
mount -o remount,bind,ro /
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def contained(command: Sequence[str]) -> list[str]:
    """The command in namespaces of its own, where this user may make them; as it is elsewhere."""
    around = [
        "unshare",
        "-m",
        "-p",
        "-u",
        "-f",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-ec",
        INSIDE,
        "pawlock",
    ]
    try:
        allowed = (
            subprocess.run([*around, "true"], capture_output=True, check=False, timeout=20).returncode == 0
        )
    except FileNotFoundError:
        allowed = False
    return [*around, *command] if allowed else list(command)


@pytest.fixture
def as_deployed(valkey: Server, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`pawlock serve` with the arguments of the image, its files elsewhere, and its address."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=localhost",
         "-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    Tokens(tmp_path)
    port = free_port()
    own = [str(tmp_path / Path(one).name) if one.startswith("/etc/") else one for one in arguments()]
    own[own.index("0.0.0.0")] = "127.0.0.1"
    command = contained([sys.executable, "-m", "pawlock", "serve", *own, "--port", str(port)])
    environ = {**os.environ, "PAWLOCK_URL": valkey.url, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nowhere"}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    yield process, f"https://127.0.0.1:{port}"
    process.kill()
    process.communicate()


def probe(address: str, path: str) -> int:
    """Ask as Kubernetes does: any certificate will do. 0: nobody listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{address}{path}", context=context, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (TimeoutError, urllib.error.URLError, ConnectionError):
        return 0


def inner(process: subprocess.Popen[str]) -> int:
    """The service itself, which is process 1 of its container."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else process.pid


@pytest.mark.slow
def test_it_runs_as_deployed_and_drains_before_it_ends(
    as_deployed: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = as_deployed
    ready, alive = (container()[kind]["httpGet"] for kind in ("readinessProbe", "livenessProbe"))
    assert ready["scheme"] == alive["scheme"] == "HTTPS"
    end = time.monotonic() + 20 * pace()
    while probe(address, ready["path"]) != 200:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.05)
    assert probe(address, alive["path"]) == 200
    os.kill(inner(process), signal.SIGTERM)
    begin = time.monotonic()
    while probe(address, ready["path"]) != 503:
        assert time.monotonic() < begin + 2 * pace()
    assert probe(address, alive["path"]) == 200
    assert process.wait(20 * pace()) == 0
    delay = options_of(arguments())["drain_delay"]
    assert delay <= time.monotonic() - begin < pace() * (delay + 4)
