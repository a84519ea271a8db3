"""Which primitives there are and what each promises: what is the same for all of them reads this.

The conformance suite, the simulator, the command, the service and the documentation read it. A new lock, or permits, is
one ``Entry``; somebody else's is registered with ``register`` at run time. A primitive of another shape, as a latch,
needs a few more places: CONTRIBUTING.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pawlock.core.protocol.engine import ANY_LIMIT
from pawlock.core.protocol.names import key_of
from pawlock.errors import ConfigurationError

if TYPE_CHECKING:
    from pawlock.core.protocol.options import LockOptions
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.primitives.redis import RedisEngine

__all__ = ["REGISTRY", "Entry", "register", "unregister"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One primitive: how it is made, and which promises hold for it.

    Attributes:
        kind: Its key in ``REGISTRY``; a word of letters, digits and ``_``.
        summary: What it is for, in one sentence.
        factory: The method of ``Client`` and ``AsyncClient`` that makes it, or a function that takes the client, the
            name and the options.
        args: Sample arguments for the factory, after the name.
        kwargs: Sample options for it.
        part: The attribute of what the factory gives that is acquired (``"read"`` of an rwlock); ``""``: itself.
        names: How many names it takes; more than 1 are given to the factory as one list.
        family: Primitives of one family keep each other out when they have one name (they share its keys).
        leases: Whether ``acquire`` gives a lease. A latch and a barrier have none.
        capacity: How many leases of one name may be held at once; None: any number (readers).
        exclusive: Whether a holder keeps every other member of its family out.
        fifo: Whether waiters are served strictly in the order in which they came.
        handover: Whether threads and tasks of one client pass the name on without the network.
        reentrant: Whether its holder may take it again.
        refuses: Whether its fence may be used to refuse a write: it rises with every grant and nobody shares it.
        adopt: Whether ``detach`` and ``adopt`` pass a lease on to another process.
        inspects: Whether ``client.inspect(name)`` shows its holders.
        record: The primitive of a name for a caller that has only the kind and the name, as the list of locks: made of the
            engine, the namespace, the name and the options of the client. None: it is in no such list.
        redlock: Whether a majority of independent nodes can keep it.
        scripts: The package that holds its ``.lua`` files.
        page: Its page in the documentation, from ``docs/``.
    """

    kind: str
    summary: str
    factory: str | Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    part: str = ""
    names: int = 1
    family: str = ""
    leases: bool = True
    capacity: int | None = 1
    exclusive: bool = True
    fifo: bool = True
    handover: bool = False
    reentrant: bool = False
    refuses: bool = True
    adopt: bool = False
    inspects: bool = False
    record: Callable[[RedisEngine, str, str, LockOptions], Primitive] | None = field(default=None, hash=False)
    redlock: bool = False
    scripts: str = ""
    page: str = ""

    def __post_init__(self) -> None:
        """Refuse an entry that contradicts itself."""
        if not self.kind.replace("_", "").isalnum():
            raise ConfigurationError(f"kind {self.kind!r} must be a word of letters, digits and '_'")
        if self.names < 1:
            raise ConfigurationError(f"{self.kind}: names must be at least 1, got {self.names}")
        if self.capacity is not None and self.capacity < 1:
            raise ConfigurationError(f"{self.kind}: capacity must be at least 1 or None, got {self.capacity}")
        if self.exclusive and self.leases and self.capacity != 1:
            raise ConfigurationError(f"{self.kind}: an exclusive primitive must have a capacity of 1")
        object.__setattr__(self, "kwargs", MappingProxyType(dict(self.kwargs)))

    def make(self, client: Any, name: str, *, named: Callable[[str], Any] = str, **options: Any) -> Any:
        """The primitive of this kind on a client of either API.

        Args:
            client: A ``Client`` or ``AsyncClient``.
            name: Its name; of several names (``names``), the one that the others are made from.
            named: What stands for a name, such as ``pawlock.Key``; default: the name itself.
            options: Options beside the sample ones, over which they win.
        """
        target: Any = named(name) if self.names == 1 else [named(one) for one in self.names_of(name)]
        given = {**self.kwargs, **options}
        if callable(self.factory):
            made = self.factory(client, target, *self.args, **given)
        else:
            made = getattr(client, self.factory)(target, *self.args, **given)
        return getattr(made, self.part) if self.part else made

    def names_of(self, name: str) -> list[str]:
        """The names that a primitive of this kind takes when it is made with ``name``."""
        return [name, *(f"{name}.{number}" for number in range(2, self.names + 1))]


REGISTRY: dict[str, Entry] = {}
"""All primitives, by their kind."""


def register(entry: Entry) -> Entry:
    """Make a primitive known.

    Args:
        entry: What is to be known of it.

    Returns:
        The entry.

    Raises:
        ConfigurationError: Another one of that kind is known already.
    """
    if REGISTRY.get(entry.kind, entry) != entry:
        raise ConfigurationError(f"a primitive of kind {entry.kind!r} is registered already")
    REGISTRY[entry.kind] = entry
    return entry


def unregister(kind: str) -> None:
    """Forget a primitive, such as one that a test made known. Does nothing if it is not known.

    Args:
        kind: Its key in ``REGISTRY``.
    """
    REGISTRY.pop(kind, None)


def _mutex(kind: str) -> Callable[[RedisEngine, str, str, LockOptions], Primitive]:
    # By the primitive's own name, which needs no escaping: a record shows what it was made with.
    return lambda engine, namespace, name, options: engine.mutex(kind, name, key_of(namespace, name), options)


def _semaphore(engine: RedisEngine, namespace: str, name: str, options: LockOptions) -> Primitive:
    return engine.semaphore(name, key_of(namespace, name), ANY_LIMIT, options)


def _rwlock(side: int) -> Callable[[RedisEngine, str, str, LockOptions], Primitive]:
    def made(engine: RedisEngine, namespace: str, name: str, options: LockOptions) -> Primitive:
        return engine.rwlock(name, key_of(namespace, name), options)[side]

    return made


def _election(engine: RedisEngine, namespace: str, name: str, options: LockOptions) -> Primitive:
    return engine.election(name, namespace, options)


def _once(engine: RedisEngine, namespace: str, name: str, options: LockOptions) -> Primitive:
    return engine.once(name, namespace, options)


_MUTEX = "pawlock.primitives.mutex"

register(
    Entry(
        kind="lock",
        summary="One owner at a time.",
        factory="lock",
        family="mutex",
        handover=True,
        adopt=True,
        inspects=True,
        redlock=True,
        scripts=_MUTEX,
        page="concepts/mutex.md",
        record=_mutex("lock"),
    )
)
register(
    Entry(
        kind="rlock",
        summary="One owner at a time, who may acquire it again.",
        factory="rlock",
        family="mutex",
        handover=True,
        reentrant=True,
        adopt=True,
        inspects=True,
        redlock=True,
        scripts=_MUTEX,
        page="concepts/reentrancy.md",
        record=_mutex("rlock"),
    )
)
register(
    Entry(
        kind="fair_lock",
        summary="One owner at a time, in strict FIFO order.",
        factory="fair_lock",
        family="mutex",
        adopt=True,
        inspects=True,
        scripts=_MUTEX,
        page="concepts/fair-lock.md",
        record=_mutex("fair_lock"),
    )
)

_PERMITS = "pawlock.primitives.permits"

register(
    Entry(
        kind="semaphore",
        summary="A limited number of owners at a time.",
        factory="semaphore",
        kwargs={"permits": 3},
        family="semaphore",
        capacity=3,
        exclusive=False,
        refuses=False,
        scripts=_PERMITS,
        page="concepts/semaphore.md",
        record=_semaphore,
    )
)
register(
    Entry(
        kind="rwlock_read",
        summary="Any number of readers, while nobody writes.",
        factory="rwlock",
        part="read",
        family="rwlock",
        capacity=None,
        exclusive=False,
        reentrant=True,
        refuses=False,
        scripts=_PERMITS,
        page="concepts/rwlock.md",
        record=_rwlock(0),
    )
)
register(
    Entry(
        kind="rwlock_write",
        summary="One writer, while nobody reads.",
        factory="rwlock",
        part="write",
        family="rwlock",
        reentrant=True,
        scripts=_PERMITS,
        page="concepts/rwlock.md",
        record=_rwlock(1),
    )
)
register(
    Entry(
        kind="latch",
        summary="A count that goes down to 0, and the clients that wait for that.",
        factory="latch",
        args=(3,),
        leases=False,
        exclusive=False,
        capacity=None,
        fifo=False,
        refuses=False,
        scripts="pawlock.primitives.latch",
        page="concepts/latch-and-barrier.md",
    )
)
register(
    Entry(
        kind="barrier",
        summary="Several parties wait until all have arrived; reusable.",
        factory="barrier",
        args=(3,),
        leases=False,
        exclusive=False,
        capacity=None,
        fifo=False,
        refuses=False,
        scripts="pawlock.primitives.barrier",
        page="concepts/latch-and-barrier.md",
    )
)
register(
    Entry(
        kind="election",
        summary="One of several candidates leads, and all can see which one.",
        factory="election",
        leases=False,
        scripts="pawlock.primitives.election",
        page="concepts/election.md",
        record=_election,
    )
)
register(
    Entry(
        kind="once",
        summary="Done once: the first caller does it, everybody else gets its result.",
        factory="once",
        leases=False,
        scripts="pawlock.primitives.once",
        page="concepts/once.md",
        record=_once,
    )
)
register(
    Entry(
        kind="multi_lock",
        summary="Several locks as one: all or none.",
        factory="multi_lock",
        names=2,
        family="mutex",
        fifo=False,
        redlock=True,
        scripts=_MUTEX,
        page="concepts/multi-lock.md",
    )
)
