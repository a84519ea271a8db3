"""Designs that are found in articles and libraries, as small as they come: each breaks where permits of pawlock do not.

All speak like the scripts: ``take`` gives True for "you hold it", ``again`` renews, ``give`` releases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from tests.unit.scripts.permit_rig import PermitRig


class Scheme(Protocol):
    """A semaphore of three permits, or readers and writers, on one server."""

    rig: PermitRig

    def take(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        """Try once, and stay in the queue where there is one."""
        ...

    def again(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        """Renew, or look again whether it is one's turn."""
        ...

    def give(self, tok: str, mode: str) -> None:
        """Release."""
        ...

    def used(self) -> int:
        """How many hold, as the scheme sees it."""
        ...


class Pawlock:
    """The scripts of pawlock."""

    def __init__(self, rig: PermitRig, permits: int = 0) -> None:
        self.rig, self.permits = rig, permits

    def take(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        return bool(self.rig.take(tok, mode, permits=self.permits, ttl=ttl)[0] == "H")

    def again(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        return bool(self.rig.again(tok, mode, permits=self.permits, ttl=ttl)[0] == "H")

    def give(self, tok: str, mode: str) -> None:
        self.rig.give(tok, mode, permits=self.permits)

    def used(self) -> int:
        return len(self.rig.state().holders)


class Naive(ABC):
    """What the naive ones share: plain commands; keys whose ttl the test's clock ends."""

    def __init__(self, rig: PermitRig, permits: int = 3) -> None:
        self.rig, self.permits = rig, permits
        self.redis: Any = rig.redis

    def again(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        return self.take(tok, mode, ttl)

    @abstractmethod
    def take(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        """Try once."""

    def expire(self) -> None:
        """Let go what is past its end on the test's clock, as the server would."""
        for key in self.redis.keys("naive*"):
            if key.endswith(":ttl") and int(self.redis.get(key)) < self.rig.now:
                self.redis.delete(key, key.removesuffix(":ttl"))

    def live_for(self, key: str, ttl: int) -> None:
        self.redis.set(f"{key}:ttl", self.rig.now + ttl)


class Counter(Naive):
    """A semaphore as a counter with one ttl, which whoever lives renews (self-limiters, many articles)."""

    def take(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        self.expire()
        if self.redis.incr("naive") > self.permits:
            self.redis.decr("naive")
            return False
        self.live_for("naive", ttl)
        return True

    def again(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        self.expire()
        self.live_for("naive", ttl)
        return True

    def give(self, tok: str, mode: str) -> None:
        self.redis.decr("naive")

    def used(self) -> int:
        self.expire()
        return int(self.redis.get("naive") or 0)


class SharedTtl(Naive):
    """Readers as a set with one ttl for all (one live reader keeps the dead ones alive)."""

    def take(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        self.expire()
        if mode == "x":
            return not self.redis.scard("naive")
        self.redis.sadd("naive", tok)
        self.live_for("naive", ttl)
        return True

    def give(self, tok: str, mode: str) -> None:
        self.redis.srem("naive", tok)

    def used(self) -> int:
        return int(self.redis.scard("naive"))


class WriterIsANumber(Naive):
    """A writer takes all permits: so many as there were when it came."""

    def take(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        weight = self.permits if mode == "x" else int(mode)
        if sum(map(int, self.redis.hvals("naive"))) + weight > self.permits:
            return False
        self.redis.hset("naive", tok, weight)
        return True

    def give(self, tok: str, mode: str) -> None:
        self.redis.hdel("naive", tok)

    def used(self) -> int:
        return int(self.redis.hlen("naive"))


class NobodyIsWaitedFor(Naive):
    """Leases in a sorted set, and no queue: who comes takes what is there, so readers keep a writer out forever."""

    def take(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        self.redis.zremrangebyscore("naive", "-inf", self.rig.now - 1)
        others = self.redis.zcard("naive")
        if mode == "x" and others:
            return False
        self.redis.zadd("naive", {tok: self.rig.now + ttl})
        return True

    def give(self, tok: str, mode: str) -> None:
        self.redis.zrem("naive", tok)

    def used(self) -> int:
        return int(self.redis.zcard("naive"))


class TwoSteps(NobodyIsWaitedFor):
    """A writer looks for readers, then writes its name: somebody may come in between (``between``)."""

    def __init__(self, rig: PermitRig, permits: int = 3) -> None:
        super().__init__(rig, permits)
        self.between: Any = None

    def take(self, tok: str, mode: str, ttl: int = 1000) -> bool:
        if self.redis.exists("naive:writer"):
            return False
        if mode != "x":
            return super().take(tok, mode, ttl)
        if self.redis.zcard("naive"):
            return False
        if self.between:
            self.between()
        self.redis.set("naive:writer", tok)
        return True

    def used(self) -> int:
        return int(self.redis.zcard("naive")) + int(self.redis.exists("naive:writer"))
