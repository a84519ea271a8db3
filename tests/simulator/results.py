"""What must be true of results: of each key one at a time, recorded by who held the name, and the same to everybody.

Told of each script that concerns one, and of what clients hear.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pawlock.core.runtime import Reply
from pawlock.primitives.once.operation import Result
from tests.simulator.invariants import Snapshot

if TYPE_CHECKING:
    from pawlock.model import Done
    from pawlock.testing.memory.store import Store
    from tests.simulator.node import Node
    from tests.simulator.world import World

__all__ = ["OnceRun", "Record", "Results"]

_NO_CHANNEL = ("", "-")


class Record(NamedTuple):
    """A result as the server keeps it.

    Attributes:
        token: Of the lease that it was recorded for.
        result: The value.
        fence: Of that lease.
        at_ms: When it was recorded.
        expiry: Until when it is kept; below 0: it has no end.
    """

    token: str
    result: Result
    fence: int
    at_ms: int
    expiry: int


class OnceRun(NamedTuple):
    """One run of a script.

    Attributes:
        node: Where it ran.
        script: Its name.
        name: The key of the name.
        done: That of the result.
        args: What it was asked.
        reply: What it answered.
        before: The keys of the name before it; None if it does not touch them.
        after: The same after it.
    """

    node: Node
    script: str
    name: str
    done: bytes
    args: list[bytes]
    reply: Reply
    before: Snapshot | None
    after: Snapshot | None

    @property
    def token(self) -> str:
        """Who asked."""
        return self.args[0].decode() if self.args else ""


class _Kept:
    """A record, and from when to when in true seconds it was there."""

    __slots__ = ("gone", "record", "since")

    def __init__(self, record: Record, since: float) -> None:
        self.record = record
        self.since = since
        self.gone = float("inf")


class Results:
    """See the module.

    Args:
        world: The run.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._all: defaultdict[str, list[_Kept]] = defaultdict(list)

    def ran(self, run: OnceRun, *, whole: bool) -> None:
        """Judge one run of a script.

        Args:
            run: What ran.
            whole: Whether the server kept all keys, and its time, until now.
        """
        now_ms = run.node.store.now_ms
        found, known = _record(run.node.store, run.done), self._known(run.name, now_ms)
        if whole:
            for wrong in self._wrong(run, known, found):
                self.world.fail(f"once: {wrong} ({run.script} of {run.name!r})")
        if found != (known.record if known else None):
            if known is not None:
                known.gone = self.world.now
            if found is not None:
                self._all[run.name].append(_Kept(found, self.world.now))

    def _known(self, name: str, now_ms: int) -> _Kept | None:
        """The record that must be there."""
        last = self._all[name][-1] if self._all[name] else None
        if last is None or last.gone <= self.world.now or 0 <= last.record.expiry < now_ms:
            return None
        return last

    def _wrong(self, run: OnceRun, known: _Kept | None, found: Record | None) -> list[str]:
        wrong: list[str] = []
        after, reply = run.after, run.reply
        if known is not None and found is None and run.script != "forget":
            wrong.append(f"{known.record} vanished")
        elif known is not None and found is not None and found != known.record:
            wrong.append(f"{found} in place of {known.record}, which is still kept")
        elif known is None and found is not None:
            wrong += _made(run, found)
        if found is not None and after is not None and (after.holders() or after.live()):
            wrong.append(f"it is done, and somebody holds it or waits: {after}")
        if reply[0] == b"D":
            answer = None if found is None else (*found.result, found.fence, found.at_ms)
            if answer != (reply[2].decode(), *reply[3:]):
                wrong.append(f"{reply[2:]} was the answer, and there is {found}")
        if run.script == "finish":
            # A resent request gets the same answer when the record is gone again.
            ever = [kept.record.token for kept in self._all[run.name]] + ([found.token] if found else [])
            if (run.token in ever) != (reply[0] == b"R"):
                wrong.append(f"{run.token} finished and got {reply[0].decode()}, and there is {found}")
        if run.script == "forget" and (found is not None or bool(reply[2]) != (known is not None)):
            wrong.append(f"{reply[2]} was forgotten of {known and known.record}, and there is {found}")
        return wrong

    # What clients hear ----------------------------------------------------------------------------------------------

    def heard(self, name: str, done: Done, asked_at: float, *, whole: bool) -> None:
        """Judge what somebody hears of a result: it is, or was while he asked, what the finisher recorded.

        Args:
            name: The key.
            done: What he heard.
            asked_at: Since when he asked, in true seconds.
            whole: Whether all servers kept all keys, and their time, until now.
        """
        same = [
            kept
            for kept in self._all[name]
            if kept.record.fence == done.fence
            and kept.record.result.value() == done.value
            and kept.record.at_ms == round(done.at.timestamp() * 1000)
        ]
        if not same:
            self.world.fail(f"once: {done} was reported of {name!r}, which nobody recorded")
        elif whole and not any(kept.gone >= asked_at for kept in same):
            self.world.fail(f"once: {done} was reported of {name!r}, and was gone before it was asked for")

    def ended(self, name: str, token: str, error: Exception | None, *, whole: bool) -> None:
        """Judge what a finisher hears: nothing was recorded for him exactly if the lease was lost.

        Args:
            name: The key.
            token: Of his lease.
            error: ``LeaseLost`` or ``NotHeld``, or None if he hears that it is recorded.
            whole: Whether all servers kept all keys, and their time, until now.
        """
        recorded = any(kept.record.token == token for kept in self._all[name])
        if error is None and not recorded:
            self.world.fail(f"once: {token} heard that {name!r} is finished, and nothing was recorded")
        elif error is not None and recorded and whole:
            self.world.fail(f"once: {token} got {error}, and its result was recorded")


def _made(run: OnceRun, found: Record) -> list[str]:
    """What is wrong about a record that is new."""
    before, args = run.before, run.args
    if run.script != "finish" or found.token != run.token or before is None:
        return [f"{found} came from nothing"]
    wrong: list[str] = []
    if before.value != run.token or before.cur != found.fence:
        wrong.append(f"{found} was recorded, and {before.value} held it with fence {before.cur}")
    if found.result != Result(args[2].decode(), args[3]):
        wrong.append(f"{found} is not what was sent")
    if found.expiry != found.at_ms + int(args[4]):
        wrong.append(f"{found} is not kept for {int(args[4])} ms")
    notified = {message.decode().partition(" ")[0] for _, message in run.node.messages}
    deaf = [
        waiter
        for waiter in before.live()
        if before.queue[waiter].channel not in _NO_CHANNEL and waiter not in notified
    ]
    if deaf:
        wrong.append(f"{deaf} wait and were not notified of {found}")
    return wrong


def _record(store: Store, key: bytes) -> Record | None:
    value, expiry = store.data.get(key), store.expires.get(key, -1)
    if not isinstance(value, dict) or b"type" not in value or 0 <= expiry < store.now_ms:
        return None
    result = Result(value[b"type"].decode(), value[b"value"])
    return Record(value[b"token"].decode(), result, int(value[b"fence"]), int(value[b"at"]), expiry)
