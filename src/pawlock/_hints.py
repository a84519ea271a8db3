"""What to write instead: for names of other libraries, for near misses, and for what is tried first of all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

__all__ = [
    "Hinting",
    "Unawaited",
    "WrongBlock",
    "made_by_client",
    "missing",
    "near",
    "refuse_construction",
    "refuse_more",
    "refuse_words",
    "words_for",
    "words_or_known",
]

_Init = TypeVar("_Init", bound=Callable[..., Any])

_OF_LEASES = (
    "beat", "check", "count", "detach", "extend", "fence", "fences", "lost", "release", "remaining", "state", "token",
    "ttl", "valid_until",
)  # fmt: skip
"""What a lease has, and a lock has not: the lock is a description, and holds nothing."""

_LEASE = {
    **dict.fromkeys(("fencing", "fence_token", "fencing_token"), "use lease.fence"),
    **dict.fromkeys(
        ("owned", "valid", "is_valid", "held", "is_held", "locked", "is_locked"), "use bool(lease)"
    ),
    **dict.fromkeys(("expired", "is_expired", "is_lost", "has_expired"), "use lease.lost, or bool(lease)"),
    **dict.fromkeys(("expires_at", "expires_in", "expiry", "time_left", "ttl_left"), "use lease.remaining()"),
    **dict.fromkeys(("close", "aclose", "do_release", "free", "unlock"), "use lease.release()"),
    **dict.fromkeys(("reacquire", "refresh", "prolong"), "use lease.extend(lease.ttl)"),
    "renew": "a lease is renewed automatically; lease.extend(ttl) sets its TTL",
    "transfer": "use lease.detach(), and client.adopt(ticket) in the other process",
    "acquire": "it is held already: acquire() is a method of the lock",
    "holder": "use client.inspect(lease.name).holder",
    "downgrade": "this is not a write lease; only the lease of rwlock(name).write can be downgraded",
}

_RELEASE = "release the lease that acquire() returned"
_ENTER = "use `with rwlock.read as lease:` or `with rwlock.write as lease:`"
_LEAD = "use `with election.campaign() as lease:`"
_TAKE = "use client.lock(name).acquire()"

_INSTEAD: dict[str, dict[str, str]] = {
    "Unique": _LEASE,
    "Acquiring": {},
    "RWLock": {
        **dict.fromkeys(("acquire", "lock"), "use rwlock.read.acquire() or rwlock.write.acquire()"),
        "try_acquire": "use rwlock.read.try_acquire() or rwlock.write.try_acquire()",
        **dict.fromkeys(("locked", "is_locked"), "use rwlock.read.locked() or rwlock.write.locked()"),
        **dict.fromkeys(("read_lock", "reader", "rlock", "r"), "use rwlock.read"),
        **dict.fromkeys(("write_lock", "writer", "wlock", "w"), "use rwlock.write"),
        **dict.fromkeys(("acquire_read", "read_acquire"), "use rwlock.read.acquire()"),
        **dict.fromkeys(("acquire_write", "write_acquire"), "use rwlock.write.acquire()"),
        **dict.fromkeys(("release", "unlock"), _RELEASE),
        "with": _ENTER,
    },
    "Election": {
        **dict.fromkeys(("acquire", "elect", "lead", "join", "start", "run_for_office"),
                        "use campaign() for a lease to lead with, or run(function) for the whole loop"),
        **dict.fromkeys(("try_acquire", "try_campaign"), "use campaign(timeout=0), which raises AcquireTimeout"),
        **dict.fromkeys(("is_leader", "am_leader", "leads", "locked"), "use leading, a property: `if election.leading:`"),
        **dict.fromkeys(("release", "step_down", "stop", "leave", "close"), "use resign()"),
        **dict.fromkeys(("fence", "token", "lease"), "use the lease that campaign() returned: lease.fence"),
        **dict.fromkeys(("get_leader", "current_leader"), "use leader()"),
        **dict.fromkeys(("watch", "subscribe"), "use observe()"),
        "with": _LEAD,
    },
    "Once": {
        **dict.fromkeys(("acquire", "start", "do"), "use `with once as state:`, or begin()"),
        **dict.fromkeys(("run", "call"), "decorate the function: @client.once(name)"),
        **dict.fromkeys(("finish", "done", "complete", "abandon"), "begin() returns it: started.finish(value)"),
        **dict.fromkeys(("reset", "delete", "clear"), "use forget()"),
    },
    "Latch": {
        **dict.fromkeys(("acquire", "await_", "join"), "use wait()"),
        **dict.fromkeys(("get_count", "left"), "use remaining()"),
        **dict.fromkeys(("decrement", "release", "done"), "use count_down()"),
        "with": "use wait()",
    },
    "Barrier": {**dict.fromkeys(("acquire", "arrive", "await_", "join"), "use wait()"), "with": "use wait()"},
    "Client": {
        **dict.fromkeys(("acquire", "get_lock", "lock_acquire"), _TAKE),
        **dict.fromkeys(("try_acquire", "try_lock"), "use client.lock(name).try_acquire()"),
        **dict.fromkeys(("locked", "is_locked"), "use client.lock(name).locked()"),
        "unlock": "release the lease that acquire() returned, or use client.release(name, token)",
        **dict.fromkeys(("Lock", "mutex", "distributed_lock"), "use client.lock(name)"),
        **dict.fromkeys(("RLock", "reentrant_lock"), "use client.rlock(name)"),
        **dict.fromkeys(("RWLock", "read_write_lock", "readwrite_lock"), "use client.rwlock(name)"),
        **dict.fromkeys(("MultiLock", "locks_all"), "use client.multi_lock([name, …])"),
        **dict.fromkeys(("Semaphore", "bounded_semaphore"), "use client.semaphore(name, permits=n)"),
        **dict.fromkeys(("countdown_latch", "count_down_latch"), "use client.latch(name, count)"),
        **dict.fromkeys(("leader", "leader_election"), "use client.election(name)"),
        **dict.fromkeys(("aclose", "disconnect", "quit"), "use close()"),
        **dict.fromkeys(("redis", "connection", "pool", "url", "address"),
                        "it has connections of its own; repr(client) shows the address"),
    },
    "Described": {
        **{name: f"use {name} of the lease that acquire() returned" for name in _OF_LEASES},
        **{name: f"{name} the lease that acquire() returned" for name in ("release", "extend", "detach")},
        **{name: f"{text}, where lease is what acquire() returned" for name, text in _LEASE.items()},
        **dict.fromkeys(("unlock", "do_release", "close", "aclose", "free"), _RELEASE),
        **dict.fromkeys(("is_locked", "is_held", "held"), "use locked()"),
        **dict.fromkeys(("is_acquired", "acquired", "is_owned"), "use held_by_me()"),
        **dict.fromkeys(("holder", "owner", "inspect", "info"), "use client.inspect(name): its holder, queue, …"),
        **dict.fromkeys(("lock", "aacquire", "acquire_async", "wait"), "use acquire()"),
        **dict.fromkeys(("try_lock", "acquire_nowait", "acquire_no_wait"), "use try_acquire()"),
        **dict.fromkeys(("read", "write"), "use client.rwlock(name).read and .write"),
        "force_release": "use client.force_release(name, reason=…)",
    },
}  # fmt: skip
"""By class, without ``Async``: what is looked for there, and what to write instead. The nearest base class counts."""

_URL = "give the address as a URL: pawlock.connect('redis://localhost:6379/0') (rediss:// for TLS)"
_PAWLOCK_WAITS = "pawlock waits in a queue: pass timeout"
_OF_THE_CLIENT = "it is an option of the client: pawlock.connect(…, {}=…)"

_WORDS = {
    "blocking_timeout": "redis-py's blocking_timeout is timeout",
    "blocking": "redis-py's blocking=False is try_acquire()",
    "lock_timeout": "redis-py's timeout, the TTL of the lock, is ttl",
    "expire": "the TTL of a lock is ttl",
    "expires": "the TTL of a lock is ttl",
    "lease_time": "Redisson's leaseTime is ttl, with renew=False",
    "wait_time": "Redisson's waitTime is timeout",
    "auto_renewal": "python-redis-lock's auto_renewal is renew, and on by default",
    "on_contended": "it belongs to the decorator: @client.lock(name)(on_contended=…)",
    "sleep": "pawlock does not poll: remove it",
    "thread_local": "a lease can be passed from thread to thread: remove it",
    "retry_count": _PAWLOCK_WAITS,
    "retry_delay": _PAWLOCK_WAITS,
    "ttl_ms": "ttl, in seconds",
    "additional_time": "extend(ttl) sets the remaining life, it does not add",
    **dict.fromkeys(("block", "wait", "max_wait", "wait_timeout"), "it is timeout (seconds to wait; 0 tries once)"),
    **dict.fromkeys(("host", "port", "db", "ssl", "tls", "url", "unix_socket_path"), _URL),
    **dict.fromkeys(("user", "login"), "it is username"),
    **dict.fromkeys(("prefix", "key_prefix", "keyspace"), "it is namespace, of the client: pawlock.connect(…, namespace=…)"),
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), "it is request_timeout or connect_timeout, of the client"),
    **dict.fromkeys(("decode_responses", "max_connections", "protocol", "retry_on_timeout"),
                    "pawlock opens its own connections: remove it"),
    **{name: _OF_THE_CLIENT.format(name) for name in
       ("namespace", "deadlock_after", "fence_ttl", "request_timeout", "connect_timeout")},
    "reentrant": "use client.rlock(name)",
    "fair": "use client.fair_lock(name)",
    "permits": "use client.semaphore(name, permits=n)",
    **dict.fromkeys(("redis", "client", "connection"), "give it to the client: pawlock.connect(a_redis_client).lock(name)"),
}  # fmt: skip

_OF_MODULE = {
    **dict.fromkeys(("Redis", "StrictRedis", "from_url"), "use pawlock.connect('redis://localhost:6379/0')"),
    **dict.fromkeys(("Redlock", "RedLock"), "pass the URLs of the masters: pawlock.connect([url, url, url])"),
    **dict.fromkeys(("aconnect", "async_connect", "AsyncConnect", "connect_aio"), "use pawlock.connect_async()"),
    **dict.fromkeys(("LockError", "PawlockException", "Error"), "use pawlock.PawlockError, the base of all errors"),
    **dict.fromkeys(("LockNotOwnedError", "LockNotOwned", "NotAcquiredError"), "use pawlock.NotHeld, or pawlock.LeaseLost"),
    **dict.fromkeys(("LockTimeout", "Timeout", "TimeoutError", "LockAcquireError"), "use pawlock.AcquireTimeout"),
}  # fmt: skip
_FACTORIES = {
    "lock": "Lock", "rlock": "", "fair_lock": "", "rwlock": "RWLock", "semaphore": "Semaphore", "latch": "Latch",
    "barrier": "Barrier", "election": "Election", "once": "Once", "multi_lock": "MultiLock", "rwlock(…).write": "WriteLock",
}  # fmt: skip
"""What a client makes by which method."""


_AWAIT_IT = "await it: `lease = await lock.acquire()`, or `async with lock.acquire() as lease:`"


class WrongBlock(TypeError, AttributeError):
    """``with`` in place of ``async with``, or the reverse; an AttributeError too, so that ``hasattr`` says no."""


def near(name: str, known: Iterable[str]) -> str:
    """The question for what was meant, if something known is spelled alike; else ""."""
    # Loaded for a mistake only.
    from difflib import get_close_matches

    found = get_close_matches(name, [one for one in known if not one.startswith("_")], 1, 0.65)
    return f"did you mean {found[0]}?" if found else ""


def words_for(unknown: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """Pawlock's words for arguments that it does not have; nothing for one that it cannot tell.

    Args:
        unknown: The arguments.
        known: Those that there are.
    """
    hints = [_WORDS.get(name) or near(name, known) for name in unknown]
    return list(dict.fromkeys(filter(None, hints)))


def words_or_known(unknown: Iterable[str], known: Collection[str]) -> str:
    """Pawlock's words for options that do not exist, as one text; all that there are if it has none."""
    return "; ".join(words_for(unknown, known)) or f"known: {', '.join(sorted(known))}"


def refuse_words(method: str, unknown: Iterable[str]) -> NoReturn:
    """Refuse keyword arguments that a method does not have, as Python does, and give pawlock's words for them.

    Raises:
        TypeError: Always.
    """
    first = min(unknown)
    text = f"{method}() got an unexpected keyword argument {first!r}"
    raise TypeError("; ".join([text, *words_for([first], ("timeout", "ttl", "stop"))]))


def refuse_more(call: str, instead: str) -> NoReturn:
    """Refuse positional arguments that a method does not have, and say how they are given.

    Args:
        call: The method.
        instead: How it is called.

    Raises:
        TypeError: Always.
    """
    raise TypeError(f"too many positional arguments: {call} is called as {instead}")


def refuse_construction(kind: type) -> NoReturn:
    """Refuse a lock that was not made by a client.

    Raises:
        TypeError: Always.
    """
    name = kind.__name__
    connect = "connect_async" if name.startswith("Async") else "connect"
    method = next((one for one, made in _FACTORIES.items() if made == name.removeprefix("Async")), "lock")
    made = method if "(" in method else f"{method}(…)"
    raise TypeError(f"{name} is made by a client: client = pawlock.{connect}(url); client.{made}")


def made_by_client(init: _Init) -> _Init:
    """Have the class of this ``__init__`` say who makes it, to those who call it with a name."""

    @wraps(init)
    def made(self: object, client: object, plan: object = None, source: object = None, **_: object) -> None:
        if source is None:
            refuse_construction(type(self))
        init(self, client, plan, source)

    return cast("_Init", made)


def missing(module: str, name: str, known: Iterable[str]) -> str:
    """The text of an ``AttributeError`` of a module, with what to write instead if that can be told."""
    said = f"module {module!r} has no attribute {name!r}"
    if name.startswith("_"):
        return said
    hint = _OF_MODULE.get(name) or near(name, known)
    if name in _FACTORIES:
        hint = f"it is a method of the client: client = pawlock.connect(url); client.{name}(…)"
    return f"{said}: {hint}" if hint else said


def _kind(cls: type) -> str:
    names = [base.__name__.replace("Async", "") for base in cls.__mro__]
    return next((name for name in names if name in _INSTEAD), "")


class _Refused:
    """Stands for the ``__enter__`` of what has ``__aenter__``, or the reverse."""

    def __get__(self, _: object, owner: type) -> NoReturn:
        raise WrongBlock(_wrong_block(owner))


def _wrong_block(owner: type) -> str:
    name, instead = owner.__name__, _INSTEAD.get(_kind(owner), {}).get("with", "")
    if name.startswith(("Async", "Acquiring")):
        return f"{name!r} object: {instead.replace('`with', '`async with') or 'use `async with`, not `with`'}"
    return (
        f"{name!r} object: {instead or 'use `with`, not `async with`; for asyncio: pawlock.connect_async()'}"
    )


class Hinting:
    """An object that says where to find what other libraries, and other objects of pawlock, have."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Have the block of the other API say which one is right, and that of what has none how it is used."""
        super().__init_subclass__(**kwargs)
        blocks = [name for name in ("__enter__", "__aenter__") if hasattr(cls, name)]
        if blocks or "with" in _INSTEAD.get(_kind(cls), {}):
            for name in {"__enter__", "__aenter__"}.difference(blocks):
                setattr(cls, name, _Refused())

    # Type checkers are not to believe that it has every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say where it is.

            Raises:
                AttributeError: Always.
            """
            cls = type(self)
            kind = _kind(cls)
            hint = _INSTEAD.get(kind, {}).get(name) or ("" if name.startswith("_") else near(name, dir(cls)))
            if kind == "Acquiring":
                hint = _AWAIT_IT
            said = f"{cls.__name__!r} object has no attribute {name!r}"
            # Without the object: Python would add a guess of its own.
            raise AttributeError(f"{said}: {hint}" if hint else said, name=name)


class Unawaited(Hinting):
    """What is nothing before it was awaited."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        """Refuse to be taken for a result: ``if lock.acquire():`` would always hold.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"{type(self).__name__!r} object: {_AWAIT_IT}")
