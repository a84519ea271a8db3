"""Steps of locks as clients of pawlock send them to `/calls`: the only tests of the service that know these.

They go with that path.
"""

from __future__ import annotations

from typing import Any

from pawlock.core.protocol.primitive import Leaving, Primitive
from pawlock.core.protocol.runtime import Call
from pawlock.primitives.election import Ballot
from pawlock.primitives.mutex import Mutex, SharedMutex
from pawlock.primitives.permits import Permits
from tests.service.intruder import LONGEST, OWNERS, Intruder
from tests.service.rig import Answer, Service

NS = "/v1/ns/pawlock"


def parse(call: Call) -> list[str]:
    """The words of a step, as a client sends them."""
    body, words, at = call.body, [], 0
    while at < len(body):
        end = body.index(b"\r\n", at)
        size = int(body[at + 1 : end])
        words.append(body[end + 2 : end + 2 + size].decode())
        at = end + 4 + size
    return words


def send(service: Service, token: str, *steps: Call) -> Answer:
    body = {"calls": [{"script": one.script.sha, "words": parse(one)} for one in steps]}
    return service.ask("POST", f"{NS}/calls", body, token=token)


def step(intruder: Intruder, space: str, name: str, token: str) -> dict[str, Any]:
    key, own = f"{space}:{name}", "".join(intruder.random.choices("abcXYZ019", k=24)) + "@host:1/me"
    plain = Mutex("lock", name, key)
    shared = SharedMutex("rlock", name, key, intruder.random.choice(OWNERS))
    of: list[Call] = [
        primitive.leave(token, 0, 0)
        for primitive in (plain, shared, Ballot(name, f"{space}:%election:{name}", 10))
    ]
    of += [primitive.renew(token, LONGEST * 1000, 3000, "") for primitive in (plain, shared)]
    of.append(plain.adopt(token, own, 30_000))
    if intruder.redis.exists(key):
        of.append(plain.swap(Leaving(token), own, 30_000, 3000, block=1, channel="-", max_waiters=10))
    for mode in ("1", "x"):
        permits: Primitive = Permits("rwlock", name, key, "rwlock", mode)
        of += [permits.leave(token, 0, 0), permits.renew(token, LONGEST * 1000, 3000, "")]
    call = intruder.random.choice(of)
    words = parse(call)
    if intruder.random.random() < 0.2:
        # As an owner that is none: what the name holds in truth.
        words = [token if word.startswith("owner=") else word for word in words]
    return {"script": call.script.sha, "words": words}
