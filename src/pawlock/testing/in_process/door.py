"""A second way to a server in this process, on which requests, answers and wake-ups get lost, late or doubled.

The counterpart of ``Proxy``, which does that to connections over the network, with the same rules. In real time.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from pawlock.core.protocol.runtime import Fault, FaultKind, Wakeup
from pawlock.testing.in_process.node import Deliver, Entrance, Outcome, Subscriber
from tests.support._rules import Action, Match, Request, Rule, claim, matches

__all__ = ["Door"]

_DIED = "the connection died on the answer"


class _Carrier:
    """A thread that does things at their time, in order; while it is stopped, they wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._stopped = False
        self._over = False
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._carry, name="pawlock-door", daemon=True)
        self._thread.start()

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something after so long, behind all that is due by then."""
        with self._changed:
            heapq.heappush(self._heap, (time.monotonic() + seconds, next(self._order), action))
            self._changed.notify()

    def stop(self, *, on: bool) -> None:
        """Let everything wait; or let it go on."""
        with self._changed:
            self._stopped = on
            self._changed.notify()

    @property
    def stopped(self) -> bool:
        """Whether everything waits."""
        return self._stopped

    def end(self) -> None:
        """End the thread; what waits is not done any more.

        Raises:
            ExceptionGroup: Something that it did failed.
        """
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()
        errors, self._errors = self._errors, []
        if errors:
            raise ExceptionGroup("the door failed", errors)

    def _carry(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - raised by `end`, in the test
                self._errors.append(error)

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            while not self._over:
                now = time.monotonic()
                if self._heap and not self._stopped and self._heap[0][0] <= now:
                    return heapq.heappop(self._heap)[2]
                waits = None if self._stopped or not self._heap else self._heap[0][0] - now
                self._changed.wait(waits)
        return None


class _Behind:
    """What the server knows of a connection that was made through a door."""

    def __init__(self, door: Door, link: Subscriber, number: int) -> None:
        self.channel: str = link.channel
        self.number: int = number
        self._door = door
        self._link = link

    def woken(self, token: str, wakeup: Wakeup) -> None:
        """See ``Subscriber``."""
        self._door.carry_push(self._link, self.number, token, wakeup)

    def cut(self) -> None:
        """See ``Subscriber``."""
        self._link.cut()


class Door:
    """See the module. Every method may be called from any thread; for what ``match`` takes, see ``Proxy``.

    Args:
        server: Where to.
        words: What a request says, for the rules to look at: its kind first, then whatever it names.
        url: Its own address, for a client.
        on_stop: Called at its end.
    """

    def __init__(
        self,
        server: Entrance,
        words: Callable[[Any], tuple[str, ...]],
        url: str,
        on_stop: Callable[[], object],
    ) -> None:
        self.shown: str = url
        self.url: str = url
        self._on_stop = on_stop
        self._server = server
        self._words = words
        self._carrier = _Carrier()
        self._numbers = count(1)
        self._behind: dict[str, _Behind] = {}
        self._rules: list[Rule] = []
        self._requests: list[Request] = []
        self._delays = 0.0, 0.0

    # For connections --------------------------------------------------------------------------------------------

    def connect(self, link: Subscriber) -> None:
        """See ``Entrance``."""
        if self._carrier.stopped:
            raise Fault(FaultKind.UNREACHABLE, f"{self.shown} does not answer")
        behind = _Behind(self, link, next(self._numbers))
        self._server.connect(behind)
        self._behind[link.channel] = behind

    def disconnect(self, link: Subscriber) -> None:
        """See ``Entrance``: what was sent before still arrives."""
        behind = self._behind.pop(link.channel, None)
        if behind is not None:
            self._server.disconnect(behind)

    def submit(self, request: Any, rid: int, deliver: Deliver) -> None:
        """See ``Entrance``."""
        seen = Request(tuple(word.encode() for word in self._words(request)), 0)
        self._requests.append(seen)
        rule = claim(self._rules, seen)
        delay = self._delays[0]
        if rule is not None and rule.action is Action.DROP_REQUEST:
            rule.hit()
            return
        if rule is not None and rule.action is Action.HOLD_REQUEST:
            rule.hit()
            delay += _seconds(rule)
        if rule is not None and rule.action is Action.DUPLICATE_REQUEST:
            rule.hit()
            self._carrier.later(delay, lambda: self._serve(request, rid, deliver, None))
        self._carrier.later(delay, lambda: self._serve(request, rid, deliver, rule))

    def _serve(self, request: Any, rid: int, deliver: Deliver, rule: Rule | None) -> None:
        try:
            self._server.submit(request, rid, lambda outcome: self._answer(outcome, deliver, rule))
        except Fault as fault:
            self._answer(fault, deliver, rule)

    def _answer(self, outcome: Outcome, deliver: Deliver, rule: Rule | None) -> None:
        delay, action = self._delays[1], None if rule is None else rule.action
        if rule is not None and rule.action.on_reply:
            rule.hit()
        if action is Action.SWALLOW_REPLY:
            return
        if action is Action.KILL_ON_REPLY:
            outcome = Fault(FaultKind.UNANSWERED, _DIED, maybe_applied=True)
        if rule is not None and action is Action.HOLD_REPLY:
            delay += _seconds(rule)
        self._carrier.later(delay, lambda: deliver(outcome))

    def carry_push(self, link: Subscriber, number: int, token: str, wakeup: Wakeup) -> None:
        """Carry a hand-off message to a connection."""
        seen = Request((b"wakeup", link.channel.encode(), token.encode()), number)
        rule = claim(self._rules, seen, push=True)
        if rule is not None:
            rule.hit()
            return
        self._carrier.later(self._delays[1], lambda: link.woken(token, wakeup))

    # For the test -----------------------------------------------------------------------------------------------

    def requests(self, match: Match = None) -> list[Request]:
        """See ``Proxy``."""
        return [request for request in list(self._requests) if matches(match, request)]

    def drop_request(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """See ``Proxy``."""
        return self._add(Action.DROP_REQUEST, match, nth, times)

    def hold_request(
        self, match: Match = None, *, seconds: float, nth: int = 1, times: int | None = 1
    ) -> Rule:
        """See ``Proxy``."""
        return self._add(Action.HOLD_REQUEST, match, nth, times, seconds)

    def duplicate_request(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """See ``Proxy``."""
        return self._add(Action.DUPLICATE_REQUEST, match, nth, times)

    def swallow_reply(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """See ``Proxy``."""
        return self._add(Action.SWALLOW_REPLY, match, nth, times)

    def kill_on_reply(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """See ``Proxy``."""
        return self._add(Action.KILL_ON_REPLY, match, nth, times)

    def hold_reply(self, match: Match = None, *, seconds: float, nth: int = 1, times: int | None = 1) -> Rule:
        """See ``Proxy``."""
        return self._add(Action.HOLD_REPLY, match, nth, times, seconds)

    def cut_push(self, match: Match = None, *, nth: int = 1, times: int | None = None) -> Rule:
        """See ``Proxy``."""
        return self._add(Action.CUT_PUSH, match, nth, times)

    def delay(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """See ``Proxy``."""
        self._delays = requests, replies

    def blackhole(self, *, on: bool = True) -> None:
        """See ``Proxy``."""
        self._carrier.stop(on=on)

    def clear(self) -> None:
        """Remove every rule, and let all be carried again."""
        for rule in self._rules:
            rule.remove()
        self._rules = []
        self.delay()
        self.blackhole(on=False)

    def stop(self) -> None:
        """End it; safe to repeat.

        Raises:
            ExceptionGroup: The door itself failed, so that what the test saw is not what it asked for.
        """
        self._on_stop()
        self._carrier.end()

    def _add(
        self, action: Action, match: Match, nth: int, times: int | None, seconds: float | None = None
    ) -> Rule:
        rule = Rule(action, match, nth=nth, times=times, seconds=seconds)
        self._rules.append(rule)
        return rule


def _seconds(rule: Rule) -> float:
    if rule.seconds is None:
        raise ValueError("a door holds for a time, and not until a rule is released")
    return rule.seconds
