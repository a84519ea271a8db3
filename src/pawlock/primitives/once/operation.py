"""How something is done once: started, waited for, finished with a result, or given up. Once for both APIs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pawlock.core import acquire
from pawlock.core import lease as leases
from pawlock.core.lease import HeldLease
from pawlock.core.options import to_ms
from pawlock.core.outcomes import NOBODY_MS, Forgotten, Look, LookAtResult
from pawlock.core.retry import query
from pawlock.errors import AcquireTimeout, ConfigurationError, NotHeld, PawlockError
from pawlock.model import Done, Release, Running

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan
    from pawlock.core.runtime import StopSignal
    from pawlock.primitives.once import OnceMutex

__all__ = [
    "MAX_VALUE",
    "AlreadyDone",
    "Recorded",
    "Result",
    "Start",
    "abandon",
    "begin",
    "end_block",
    "finish",
    "forget",
    "look",
    "running",
]


MAX_VALUE = 65536
"""The most bytes of a result; of a JSON value, of its text."""

_TYPES = {"n": "nothing", "b": "bytes", "s": "text", "j": "JSON"}


class Result(NamedTuple):
    """A result as the server keeps it: ``n`` nothing, ``b`` bytes, ``s`` text, ``j`` JSON."""

    type: str
    data: bytes

    @classmethod
    def of(cls, value: Any, name: str) -> Result:
        """The form of a value.

        Raises:
            ConfigurationError: It is too large, or nothing that JSON can express.
        """
        if value is None:
            return cls("n", b"")
        if isinstance(value, (bytes, bytearray)):
            made = cls("b", bytes(value))
        elif isinstance(value, str):
            made = cls("s", value.encode("utf-8", "surrogatepass"))
        else:
            try:
                text = json.dumps(value, allow_nan=False, separators=(",", ":"))
            except (TypeError, ValueError, RecursionError) as error:
                raise ConfigurationError(
                    f"finish {name!r}: the value must be bytes, text or JSON, got {type(value).__name__} ({error})"
                ) from error
            made = cls("j", text.encode())
        if len(made.data) > MAX_VALUE:
            raise ConfigurationError(
                f"finish {name!r}: the value has {len(made.data):,} bytes, and {MAX_VALUE:,} are the limit: store it "
                "elsewhere, and finish with what finds it again"
            )
        return made

    def value(self) -> Any:
        """The value again; of JSON, what ``json.loads`` makes of it (a tuple comes back as a list)."""
        if self.type == "n":
            return None
        if self.type == "b":
            return self.data
        if self.type == "s":
            return self.data.decode("utf-8", "surrogatepass")
        return json.loads(self.data)


class Recorded(NamedTuple):
    """What is known of a result without its value.

    Attributes:
        type: "nothing", "bytes", "text" or "JSON".
        size: Bytes of the value.
        fence: The fencing token of the lease under which it was done.
        at: When it was finished, in Unix time by the server's clock.
        keep_left: Seconds for which it is still kept.
    """

    type: str
    size: int
    fence: int
    at: float
    keep_left: float


class AlreadyDone(PawlockError):
    """The result is there: nothing can be acquired."""

    def __init__(self, name: str, result: Result, fence: int, at_ms: int) -> None:
        super().__init__(f"once {name!r}: it is done", name=name)
        self.done: Done = Done(result.value(), fence, datetime.fromtimestamp(at_ms / 1000, UTC))


class Start(NamedTuple):
    """The right to do it, as the operations see it.

    Attributes:
        plan: What is done once.
        lease: The lease.
        keep: Seconds for which a result is kept, where none are given.
    """

    plan: Plan
    lease: HeldLease
    keep: float


async def begin(
    engine: Engine, plan: Plan, timeout: float | None, stop: StopSignal | None = None
) -> HeldLease | Running | Done:
    """Start it, or find out who runs it, or what came of it.

    Args:
        engine: The client's engine.
        plan: What to do once.
        timeout: Seconds to wait for the result of the client that runs it; None: no limit; 0 does not wait.
        stop: Ends the wait once it is set.

    Raises:
        NotAcquired: It still ran at the end of ``timeout``.
        BackendError: The server could not be reached.
    """
    try:
        if timeout != 0:
            return await acquire.acquire(engine, plan, timeout, stop)
        while True:
            lease = await acquire.acquire(engine, plan, 0, or_none=True)
            found = await _runner(engine, plan) if lease is None else lease
            # Nobody has it any more: it was finished or given up in between.
            if found is not None:
                return found
    except AlreadyDone as found:
        return found.done


async def _runner(engine: Engine, plan: Plan) -> Running | None:
    primitive = plan.primitive
    look, _ = await query(engine, primitive.inspect(0), plan.options, primitive.name, "ask")
    if not isinstance(look, Look) or look.left_ms == NOBODY_MS:
        return None
    until = datetime.fromtimestamp((look.now_ms + max(look.left_ms, 0)) / 1000, UTC)
    return Running(look.holder or None, until)


def running(name: str, state: Running) -> AcquireTimeout:
    """The error of a function that is not called, because somebody runs it already."""
    who = f" by {state.holder}" if state.holder else ""
    text = f"once {name!r}: it is being run{who}; wait=True waits for its result"
    return AcquireTimeout(text, name=name, holder=state.holder, waited=0.0)


async def finish(start: Start, value: Any, keep: float) -> None:
    """Record the result and free the name, in one script.

    Raises:
        ConfigurationError: The value is too large, or cannot be expressed.
        NotHeld: It was finished or given up before.
        LeaseLost: The lease was lost first: nothing is recorded, and another client may have started it.
        BackendError: The server refused, or did not answer. It is asked again in the background for a minute, so the
            result may be recorded.
    """
    lease = start.lease
    hold, name = lease.hold, lease.name
    primitive = cast("OnceMutex", hold.primitive)
    result = Result.of(value, name)
    if lease.released:
        raise NotHeld(f"finish {name!r}: it was finished or abandoned before", name=name, operation="finish")
    if lease.is_held():
        # From here on each of its releases records the result, also one that goes on without its caller.
        hold.primitive = primitive.finishing(result, to_ms(keep), lease.fence)
    outcome = await leases.release(lease.engine, lease)
    if outcome is Release.LOST:
        raise lease.loss()
    if outcome is Release.UNKNOWN:
        cls, why = hold.unsure
        text = why or f"finish {name!r}: the server did not answer"
        raise cls(
            f"{text}; the result may be recorded, or the lock expires within {lease.ttl:g} s", name=name
        )


async def abandon(start: Start) -> None:
    """Free the name without a result; the next waiter starts.

    Raises:
        NotHeld: It was finished, abandoned or lost before.
        BackendError: The server did not answer; the TTL frees the name at the latest.
    """
    lease = start.lease
    if not lease.released:
        # A finish that was interrupted before it was sent is not repeated.
        lease.hold.primitive = start.plan.primitive
    await leases.release_or_raise(lease.engine, lease)


async def end_block(start: Start, error: BaseException | None) -> None:
    """End a ``with`` block: finish without a value, or abandon if the body raised. Never hides the body's exception.

    Raises:
        LeaseLost: The lease was lost while the body ran, and the body did not raise.
        BackendError: As ``finish`` does.
    """
    lease = start.lease
    if lease.released or lease.inert():
        return
    if error is None:
        await finish(start, None, start.keep)
    else:
        lease.hold.primitive = start.plan.primitive
        await leases.end_block(lease, error)


async def forget(engine: Engine, plan: Plan) -> bool:
    """Delete the record of the result; False if there was none.

    Raises:
        BackendError: The server could not be reached.
    """
    engine.check_open(plan.primitive.name)
    once = cast("OnceMutex", plan.primitive)
    forgotten: Forgotten = (await query(engine, once.forget(), plan.options, once.name, "forget"))[0]
    return forgotten.deleted


async def look(engine: Engine, plan: Plan) -> Recorded | None:
    """What is recorded of the result, without its value; None while there is none.

    Raises:
        BackendError: The server could not be reached.
    """
    once = cast("OnceMutex", plan.primitive)
    found: LookAtResult = (await query(engine, once.look(), plan.options, once.name, "read"))[0]
    if not found.type:
        return None
    left = max(0, found.left_ms) / 1000
    return Recorded(_TYPES[found.type], found.size, found.fence, found.at_ms / 1000, left)
