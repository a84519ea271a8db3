"""The fast path back where a call blocks its thread: no coroutine is made for it, and nothing else differs.

The steps are those of ``fast``, in the order of ``release.release``, which has them for tasks (and the simulator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pawl.core.lease.in_progress import Ending
from pawl.core.lease.record import HeldLease
from pawl.core.protocol.outcomes import Released
from pawl.core.protocol.runtime import Fault, run
from pawl.core.release.fast import end, give_back
from pawl.core.release.release import leave, tell_block
from pawl.core.release.release import release as release_anyhow
from pawl.errors import PawlError
from pawl.model import Release

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine

__all__ = ["end_block", "release"]


def release(engine: Engine, lease: HeldLease) -> Release:
    """End a lease; see ``release.release``."""
    runtime, server_lease = engine.runtime, lease.server_lease
    line = runtime.line() if lease.levels == 1 else None
    if line is None:
        return run(release_anyhow(engine, lease))
    engine.activity.in_progress[mark := Ending(lease)] = runtime.who()
    try:
        call = end(engine, lease)
        if call is None:
            return run(release_anyhow(engine, lease))
        answer: Any
        try:
            answer = give_back(engine, server_lease, line, call)
            if type(answer) is Released:
                return Release.RELEASED
        except Fault as fault:
            answer = fault
        outcome = run(leave(engine, server_lease, answer))
        lease.lost = outcome is Release.LOST
        return outcome
    except PawlError:
        raise
    except BaseException:
        if lease.released:
            engine.finish_release(lease)
        raise
    finally:
        engine.activity.in_progress.pop(mark, None)


def end_block(engine: Engine, lease: HeldLease, error: BaseException | None) -> None:
    """Release at the end of a ``with`` block; see ``release.end_block``."""
    if not lease.released and not lease.inert() and release(engine, lease) is Release.LOST:
        tell_block(lease, error)
