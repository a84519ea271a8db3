"""What a client and its locks are made of: no I/O, so both APIs share it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pawlock._deadlocks import DeadlockWatch
from pawlock._environment import check_known, from_environment
from pawlock._hints import refuse_more
from pawlock._inside import after_fork
from pawlock._template import Template, Unfilled, escape, plain
from pawlock.core.key import Key
from pawlock.core.names import MAX_NAME_BYTES, check_namespace, helper_key, key_of, wake_prefix
from pawlock.core.options import LockOptions, Seconds, check_callback
from pawlock.core.plan import ASKERS, Plan
from pawlock.core.primitive import Namespace
from pawlock.core.transfer import Ticket, read_ticket
from pawlock.errors import ConfigurationError, NotSupported
from pawlock.primitives.found import Finder
from pawlock.primitives.multi.lease import MultiPlan
from pawlock.primitives.redis import REDIS, RedisEngine
from pawlock.primitives.registry import REGISTRY, beside_locks

if TYPE_CHECKING:
    from pawlock.core.primitive import Primitive
    from pawlock.redlock.nodes import KnownMasters
    from pawlock.redlock.options import RedlockOptions
    from pawlock.topology.endpoint import Place

__all__ = [
    "TRIAL",
    "TRIED",
    "AnyPlan",
    "Settings",
    "check_for_quorum",
    "check_word",
    "exclusive_plan",
    "live_clients",
    "name_and_key",
    "plan_of",
    "plan_of_key",
    "queue_key_of",
    "refuse_on_quorum",
    "strict_order",
    "unfilled",
]


AnyPlan = TypeVar("AnyPlan", Plan, MultiPlan)

_EXCLUSIVE = ("lock", "rlock", "fair_lock")
"""A waiter for one of these waits for its one holder, so a cycle of such waits never ends."""


_OF_THE_CLIENT = {"deadlock_after", *LockOptions.known(client=True)} - set(LockOptions.known())
"""Options that only a client has."""

_OF_CONNECT = ("namespace", "username", "password", "credential_provider", "redlock")
"""What ``connect`` takes beside them: never among the defaults, but what somebody may have meant."""

TRIAL = "pawlock-check"
"""The name that ``check()`` locks."""

TRIED: Mapping[str, Any] = {"unavailable_after": 2.0, "min_hold": 0.0, "on_unavailable": "raise"}
"""Its options, over those of the client."""

_PLAIN_VALUES = frozenset({float, int, bool, str, NoneType, timedelta})
_MOST_FOUND = 64
_MOST_PLANS = 256


def _namespace_of(environ: Mapping[str, str]) -> str:
    """``PAWLOCK_NAMESPACE`` without the white space that files leave around it (a blank, a Windows line end)."""
    given = environ.get("PAWLOCK_NAMESPACE", "pawlock")
    # Only blanks are not the empty namespace, under which names are keys: the check refuses them.
    return given.strip() or given


class Settings:
    """The defaults of a client: checked once, when it is made.

    A program makes a lock for each thing that it works on, with the same few options each time: options that
    passed the checks are cached, which saves two thirds of the cost of making a lock, and its leases share one object.
    Callbacks are not cached, since they keep alive what they refer to.

    Args:
        defaults: What ``connect`` was given, None for "not given".
        namespace: What the keys begin with; None takes ``PAWLOCK_NAMESPACE``, else ``"pawlock"``.
        may_be_async: Whether ``on_lost`` may be a coroutine function.
        environ: The process's environment.
    """

    def __init__(
        self,
        defaults: Mapping[str, Any],
        namespace: str | None,
        *,
        may_be_async: bool,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        given = {key: value for key, value in defaults.items() if value is not None}
        check_known(given, {*LockOptions.known(), *_OF_THE_CLIENT, *_OF_CONNECT})
        given = from_environment(given, environ)
        self.deadlock_after: float = given.pop("deadlock_after", 1.0)
        self.may_be_async = may_be_async
        check_callback(given.get("on_lost"), may_be_async=may_be_async)
        self.options = LockOptions(**given)
        self._found: dict[tuple[Any, ...], LockOptions] = {}
        self.plans: dict[tuple[Any, ...], Plan] = {}
        if namespace is None:
            namespace = _namespace_of(environ)
            self.namespace = check_namespace(namespace, "PAWLOCK_NAMESPACE")
        else:
            self.namespace = check_namespace(namespace)
        self.sharded: bool = False
        self.wake_prefix = wake_prefix(self.namespace)
        self.redlock: RedlockOptions | None = None
        self.masters: KnownMasters | None = None
        self.place: Place | None = None
        self.engine: RedisEngine = REDIS

    def names(self) -> Namespace | None:
        """What the namespace as a whole is asked with; None where no server has all of it."""
        calls = self.engine.names(self.namespace)
        if calls is None:
            return None
        return Namespace(calls, self._shown, beside_locks, partial(Finder, self.namespace, self.options))

    def watcher(self) -> DeadlockWatch | None:
        """Who looks for deadlocks of one engine; None: nobody."""
        names = self.names() if self.deadlock_after else None
        return None if names is None else DeadlockWatch(names, self.deadlock_after)

    def _shown(self, kind: str, name: str) -> Primitive | None:
        kind, _, wire = kind.partition("=")
        if wire and kind in _EXCLUSIVE:
            try:
                key = Key(name.removeprefix("key:"), cast("Any", wire))
                return plan_of_key(self, kind, key, {}).primitive
            except (ConfigurationError, NotSupported):
                return None
        # A record says "rwlock.read"; the question whether a name is held as another kind says "rwlock": either side.
        entry = REGISTRY.get(kind.replace(".", "_"))
        entry = entry or next((one for one in REGISTRY.values() if one.family == kind), None)
        return entry.of(self.namespace, name, self.options) if entry else None

    def lock_options(self, given: Mapping[str, Any]) -> LockOptions:
        """The options of one lock: the client's defaults, changed by what was given.

        Raises:
            ConfigurationError: An unknown option, or a value that can never work.
        """
        if not given:
            return self.options
        # To a dict, True equals 1, and is no valid ttl: the types are part of the key.
        key = tuple([(name, value.__class__, value) for name, value in given.items()])
        if not all(item[1] in _PLAIN_VALUES for item in key):
            return self._checked(given)
        found = self._found.get(key)
        if found is None:
            found = self._checked(given)
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            self._found[key] = found
        return found

    def _checked(self, given: Mapping[str, Any]) -> LockOptions:
        check_known(given, LockOptions.known())
        if "on_lost" in given:
            check_callback(given["on_lost"], may_be_async=self.may_be_async)
        return self.check_lives(self.options.but(**given))

    def check_lives(self, options: LockOptions) -> LockOptions:
        """The options, if leases there can live for so short a time.

        Raises:
            ConfigurationError: They cannot.
        """
        place = self.place
        if place is not None and min(options.ttl, options.ticket) < place.least_ttl:
            text = f"ttl and ticket_ttl must be at least {place.least_ttl:g} s on {place.shown}"
            raise ConfigurationError(f"{text}, got ttl={options.ttl:g} and ticket_ttl={options.ticket:g}")
        return options

    def with_ttl(self, plan: AnyPlan, ttl: Seconds) -> AnyPlan:
        """A plan with another ttl, for one acquisition."""
        if isinstance(plan, MultiPlan):
            return replace(plan, members=tuple([self.with_ttl(member, ttl) for member in plan.members]))
        options = self.check_lives(plan.options.but(ttl=ttl))
        if self.redlock is not None:
            self.redlock.check_ttl(options.ttl)
        queue_key = queue_key_of(plan.primitive, options, plan.identity)
        return replace(plan, options=options, queue_key=queue_key)

    def plan_of_ticket(self, text: object, given: Mapping[str, Any]) -> tuple[Ticket, Plan]:
        """The content of a ticket, and the plan that its lease goes on with.

        Raises:
            ConfigurationError: It is no ticket, or of another namespace.
        """
        ticket = read_ticket(text)
        name = ticket.source or escape(ticket.name)
        plan = plan_of(self, "lock", name, {"ttl": ticket.ttl, **given})
        if plan.primitive.key != ticket.key:
            raise ConfigurationError(
                "the ticket belongs to another namespace: adopt it with a client of that namespace"
            )
        return ticket, plan


def plan_of(
    settings: Settings,
    kind: str,
    name: str | Key,
    given: Mapping[str, Any],
    more: tuple[object, ...] = (),
) -> Plan:
    """The plan of a ``lock``, ``rlock`` or ``fair_lock``; cached by its arguments.

    Args:
        settings: Those of the client.
        kind: The method.
        name: The name.
        given: The options.
        more: What was given by position behind the name: nothing may be.

    Raises:
        ConfigurationError: A name or option that can never work.
        NotSupported: A key that cannot be shared in this way.
        TypeError: More was given by position.
    """
    if more:
        refuse_more(
            kind, f'client.{kind}("…", ttl={more[0]!r:.20}) or client.{kind}("…", timeout={more[0]!r:.20})'
        )
    values = given.values()
    types = tuple(map(type, values))
    # A key may be long: such plans are not kept.
    short = name.__class__ is str or (isinstance(name, Key) and len(name.key) <= MAX_NAME_BYTES)
    if not short or not _PLAIN_VALUES.issuperset(types):
        return _new_plan(settings, kind, name, given)
    # To a dict, True equals 1, and is no valid ttl: the types are part of the key.
    key = (kind, name, *given, *values, *types)
    found = settings.plans.get(key)
    if found is None:
        found = _new_plan(settings, kind, name, given)
        if len(settings.plans) >= _MOST_PLANS:
            settings.plans.clear()
        settings.plans[key] = found
    return found


def _new_plan(settings: Settings, kind: str, name: str | Key, given: Mapping[str, Any]) -> Plan:
    if isinstance(name, Key):
        return plan_of_key(settings, kind, name, given)
    if kind == "fair_lock":
        given = strict_order(given)
    options = settings.lock_options(given)
    found = name_and_key(settings, name)
    if found is None:
        return unfilled(kind, name, options)
    name, key = found
    if settings.redlock is not None:
        refuse_on_quorum(settings, kind)
        check_for_quorum(settings.redlock, options)
    return exclusive_plan(settings.engine.mutex(kind, name, key, options), options)


def plan_of_key(settings: Settings, kind: str, key: Key, given: Mapping[str, Any]) -> Plan:
    """The plan of a lock whose key is given, whatever the namespace.

    Raises:
        ConfigurationError: An option that can never work.
        NotSupported: What cannot be shared with other programs.
    """
    if kind == "fair_lock":
        raise NotSupported(
            f"fair_lock cannot be used with {key.name!r}: programs of other libraries keep no order; use lock"
        )
    options = settings.lock_options(given)
    _refuse_there(settings, "Key")
    if settings.redlock is not None:
        if key.wire != "plain":
            raise NotSupported(
                f"{key.name!r} cannot be used on independent masters (Redlock): "
                f"wire={key.wire!r} is not supported there; use a single server, Sentinel or Cluster"
            )
        refuse_on_quorum(settings, kind)
        check_for_quorum(settings.redlock, options)
    _check_slots(settings, key)
    return exclusive_plan(settings.engine.mutex_at(kind, key, options, sharded=settings.sharded), options)


def _check_slots(settings: Settings, key: Key) -> None:
    """Refuse what a script of the key cannot reach: in a cluster it may lie on another node."""
    if not settings.sharded:
        return
    from pawlock.topology.cluster import slot_of

    slot = slot_of(key.key.encode(errors="surrogateescape"))
    if slot_of(helper_key(key.key, "").encode(errors="surrogateescape")) != slot:
        raise NotSupported(
            f"{key.name!r} has a }} and no hash tag, so no other key has its slot in a cluster: use another key"
        )
    if key.wake is None or key.wake[0] != "push":
        return
    if slot_of(key.wake[1].encode(errors="surrogateescape")) != slot:
        raise NotSupported(
            f"{key.name!r} wakes waiters by the list {key.wake[1]!r}, which has another hash slot in a cluster: "
            "use a name with one pair of braces, or pawlock.Key(key) without wake"
        )


def exclusive_plan(primitive: Primitive, options: LockOptions) -> Plan:
    """The plan of a primitive that one owner holds at a time, whichever it is."""
    capacity = 1 if options.hands_over else ASKERS
    return Plan(
        primitive, options, primitive.kind == "rlock", False, capacity, queue_key_of(primitive, options)
    )


def refuse_on_quorum(settings: Settings, kind: str) -> None:
    """Refuse what a majority of independent masters cannot keep.

    Raises:
        NotSupported: It is such a primitive, and the client has such masters; or its server has no such primitive.
    """
    _refuse_there(settings, kind)
    if settings.redlock is not None and not getattr(REGISTRY.get(kind), "redlock", False):
        text = (
            f"{kind} is not safe on independent masters (Redlock): use a single server, Sentinel or Cluster"
        )
        raise NotSupported(f"{text}; the page on Redlock in the documentation says why")


def _refuse_there(settings: Settings, kind: str) -> None:
    if settings.place is not None and kind in settings.place.lacks:
        raise NotSupported(f"{kind} is not available on {settings.place.shown}: use Redis or Valkey for it")


def check_for_quorum(redlock: RedlockOptions, options: LockOptions) -> None:
    """Refuse options that several independent masters cannot keep.

    Raises:
        ConfigurationError: The ttl is too long for them.
        NotSupported: They ask for replicas.
    """
    redlock.check_ttl(options.ttl)
    if options.replicas:
        raise NotSupported(
            "replicas cannot be used with independent masters (Redlock), which have no replicas"
        )
    redlock.check_fence_ttl(options.fence_ttl)


def name_and_key(settings: Settings, name: object) -> tuple[str, str] | None:
    """The name that a text stands for, its doubled braces undone, and its key.

    Returns:
        None if the name has fields, for a decorator to fill.

    Raises:
        ConfigurationError: It can never be a name.
    """
    literal = name
    if isinstance(name, Key):
        raise NotSupported(
            f"{name.name!r} is a key that other programs share, and only locks have a form in common with them: "
            "use lock, rlock or multi_lock for it"
        )
    if isinstance(name, str):
        literal = plain(name)
        if literal is None:
            Template(name)
            return None
    return cast("str", literal), key_of(settings.namespace, literal)


def unfilled(kind: str, name: str, options: LockOptions) -> Plan:
    """The plan of a name with fields: a decorator takes it, and every other use raises ``ConfigurationError``."""
    return Plan(cast("Primitive", Unfilled(kind, name)), options, False, False, ASKERS, "")


def strict_order(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a lock without local hand-over.

    Raises:
        ConfigurationError: A ``handover`` was given.
    """
    if given.get("handover", 0) != 0:
        raise ConfigurationError("handover must be 0 for a fair_lock, which has no local hand-off: use lock")
    return {**given, "handover": 0}


def queue_key_of(primitive: Primitive, options: LockOptions, identity: str = "") -> str:
    """The key of the locks of which one waiter may go on for another."""
    shape = f"{getattr(primitive, 'mode', '')} {getattr(primitive, 'permits', '')}"
    return f"{primitive.key} {shape} {identity} {options.queue_group}"


def check_word(value: object, what: str) -> str:
    """Check text that names a candidate or an identifier.

    Args:
        value: What the user gave.
        what: The option's name, for the error.

    Raises:
        ConfigurationError: It is no text, empty, longer than 200 bytes, or not one printable word.
    """
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{what} must be text of 1 to 200 bytes, not {value!r:.40}")
    if any(c.isspace() or not c.isprintable() for c in value):
        text = f"{what} {value!r:.40} contains white space or control characters; use letters, digits, '-'"
        raise ConfigurationError(text)
    if len(value.encode()) > 200:
        raise ConfigurationError(f"{what} must be at most 200 bytes")
    return value


live_clients: weakref.WeakSet[Any] = weakref.WeakSet()
"""Clients that must notice a fork and the exit of the interpreter."""


def _reset_after_fork() -> None:
    with ExitStack() as stack:
        for client in list(live_clients):
            # Each, also where another one's fails.
            stack.callback(after_fork, client)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
