"""The benchmark program of the server itself, as a participant: what the two commands of a lock cost without a lock.

It speaks the same lines of JSON as `benchmarks.worker`. Half of a turn it sends `SET key token NX PX`, half of it a
compare-and-delete script, on as many connections as there are workers; a pair is one of each.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from urllib.parse import urlsplit

from benchmarks.peers.base import Peer

_COMPARE_AND_DELETE = (
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
)
_PROBE = 500


def _program() -> str | None:
    return shutil.which("valkey-benchmark") or shutil.which("redis-benchmark")


def _lacks() -> str | None:
    return None if _program() else "redis-benchmark: neither it nor valkey-benchmark is on PATH"


def _command(job: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.peers.server_benchmark", job]


PEER = Peer(
    key="server-benchmark",
    label="floor: redis-benchmark",
    modules=(),
    distributions=(),
    commands=frozenset({"set", "eval"}),
    program=_command,
    lacks=_lacks,
)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _send(port: int, workers: int, number: int, *words: str) -> float:
    begin = time.monotonic()
    subprocess.run(
        [str(_program()), "-p", str(port), "-c", str(workers), "-n", str(number), "-q", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.monotonic() - begin


def _turn(port: int, workers: int, name: str, seconds: float) -> dict[str, float]:
    take = ("SET", name, "0" * 52, "NX", "PX", "30000")
    give = ("EVAL", _COMPARE_AND_DELETE, "1", name, "0" * 52)
    cpu = _cpu()
    wall = _send(port, workers, _PROBE, *take) + _send(port, workers, _PROBE, *give)
    number = max(_PROBE, int(_PROBE / wall * (seconds - wall)))
    wall += _send(port, workers, number, *take) + _send(port, workers, number, *give)
    spent = _cpu() - cpu
    return {"grants": number + _PROBE, "wall": wall, "cpu": spent, "thread_cpu": spent}


def main() -> None:
    """Be the participant that the first argument describes, until standard input ends."""
    job = json.loads(sys.argv[1])
    port: int = urlsplit(str(job["url"])).port or 6379
    print(json.dumps({"ready": 1}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_turn(port, job["workers"], job["name"], json.loads(line)["seconds"])), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
