"""How a latch is counted down and waited for: once for both APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.names import check_text
from pawlock.core.options import LockOptions, check_count
from pawlock.core.outcomes import Disagreed, Full, LatchLost, LookAtLatch, Outcome, Shut
from pawlock.core.retry import query
from pawlock.core.runtime import Request
from pawlock.errors import (
    BackendReadOnly,
    BackendUnavailable,
    ConfigurationError,
    LeaseLost,
    PawlockError,
    QueueFull,
)
from pawlock.model import LossReason
from pawlock.primitives.gate_wait import GateWait, disagreement, unexpected

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.primitives.latch import Latch

__all__ = ["MAX_COUNT", "check_part", "count_down", "remaining", "reset", "wait"]

MAX_COUNT = 1_000_000_000
"""The largest count of a latch."""


def check_part(part: object) -> str:
    """Who or what counts down, as it is sent; ``""`` for None.

    Raises:
        ConfigurationError: It is not text of 1 to 200 bytes.
    """
    if part is None:
        return ""
    if not isinstance(part, str) or not part:
        raise ConfigurationError(f"part must be text of 1 to 200 bytes, got {part!r:.40}")
    return check_text(part, "part")


async def count_down(
    engine: Engine, latch: Latch, options: LockOptions, n: int, part: str, token: str | None = None
) -> None:
    """Count down, once, however often the request must be sent: by ``token``, or by a new one.

    Raises:
        LimitMismatch: The latch is in use with another count.
        BackendError: The server could not be reached; where it may still count, it is sent on in the background.
    """
    check_count(n, "n", 1, MAX_COUNT)
    call = latch.count_down(token or engine.runtime.new_token(), part, n)
    await _change(engine, latch, options, call, "count down latch")


async def reset(engine: Engine, latch: Latch, options: LockOptions, token: str | None = None) -> None:
    """Begin a new round, once, however often the request must be sent: by ``token``, or by a new one.

    Raises:
        BackendError: The server could not be reached; where it may still be done, it is sent on in the background.
    """
    await _change(engine, latch, options, latch.reset(token or engine.runtime.new_token()), "reset latch")


async def _change(engine: Engine, latch: Latch, options: LockOptions, call: Request, doing: str) -> None:
    engine.check_open(latch.name)
    calls, change = engine.calls, object()
    calls[change] = engine.runtime.who()
    try:
        outcome, _ = await query(engine, call, options, latch.name, doing)
    except BaseException as error:
        # A refusal is final. What may still be done is done without its caller, also one that was cancelled.
        if not isinstance(error, PawlockError) or isinstance(error, (BackendUnavailable, BackendReadOnly)):
            engine.post(call)
        raise
    finally:
        calls.pop(change, None)
    if isinstance(outcome, Disagreed):
        raise disagreement("latch", latch.name, "count", outcome.declared, latch.count)


async def remaining(engine: Engine, latch: Latch, options: LockOptions) -> int:
    """How much is left to count down; the whole count where nobody used the latch yet.

    Raises:
        LimitMismatch: The latch is in use with another count.
        BackendError: The server could not be reached.
    """
    engine.check_open(latch.name)
    look: LookAtLatch = (await query(engine, latch.inspect(), options, latch.name, "read latch"))[0]
    if look.initial and look.initial != latch.count:
        raise disagreement("latch", latch.name, "count", look.initial, latch.count)
    return look.left if look.initial else latch.count


async def wait(engine: Engine, latch: Latch, options: LockOptions, timeout: float | None) -> None:
    """Wait until the latch opens.

    Raises:
        AcquireTimeout: It was still closed at the end of ``timeout``.
        LeaseLost: The server lost the latch meanwhile, and with it what was counted.
        QueueFull: More than ``max_waiters`` wait.
        LimitMismatch: The latch is in use with another count.
        BackendError: The server could not be reached.
    """
    engine.check_open(latch.name)
    waiting = _Waiting(engine, latch, options, timeout)
    await waiting.within(waiting.run())


class _Waiting(GateWait):
    """One wait: it learns which round it is in, then has itself noted for that round, then sleeps and asks."""

    doing = "wait at latch"

    def __init__(self, engine: Engine, latch: Latch, options: LockOptions, timeout: float | None) -> None:
        super().__init__(engine, options, latch.name, timeout)
        self.latch = latch
        self.left = latch.count

    def leave(self) -> Request:
        return self.latch.leave(self.token, self.least, self.channel)

    def call(self) -> Request:
        self.noted = self.least > 0
        return self.latch.wait(self.token, self.least, self.channel, self.former)

    def state(self) -> str:
        return f"still closed, {self.left} to go,"

    def read(self, outcome: Outcome) -> None:
        if isinstance(outcome, Shut):
            self.left, self.least = outcome.left, self.least or outcome.round
        elif isinstance(outcome, Disagreed):
            raise disagreement("latch", self.name, "count", outcome.declared, self.latch.count)
        elif isinstance(outcome, Full):
            text = f"{self.doing} {self.name!r}: {outcome.waiters} clients wait already"
            raise QueueFull(text, name=self.name)
        elif isinstance(outcome, LatchLost):
            text = f"{self.doing} {self.name!r}: the server lost the latch and its count"
            raise LeaseLost(text, name=self.name, reason=LossReason.EXPIRED)
        else:
            raise unexpected(outcome, self.doing, self.name)
