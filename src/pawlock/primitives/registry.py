"""Which primitives there are and what each promises: what is the same for all of them reads this.

The conformance suite, the simulator, the command, the service and the documentation read it. A new primitive is its
folder, a factory method of the client, and one ``Entry``; somebody else's is registered with ``register`` at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pawlock.errors import ConfigurationError, NotSupported
from pawlock.primitives.election import ballot
from pawlock.primitives.mutex import mutex
from pawlock.primitives.once import once
from pawlock.primitives.permits import reader, semaphore, writer

if TYPE_CHECKING:
    from pawlock.core.options import LockOptions
    from pawlock.core.primitive import Primitive

__all__ = ["REGISTRY", "Entry", "beside_locks", "register", "unregister"]


Record = Callable[[str, str, "LockOptions"], "Primitive"]
"""Makes the primitive of a name: of the namespace, the name and the options of the client."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One primitive: how it is made, and which promises hold for it.

    Attributes:
        kind: Its key in ``REGISTRY``; a word of letters, digits and ``_``.
        summary: What it is for, in one sentence.
        factory: The method of ``Client`` and ``AsyncClient`` that makes it, or a function that takes the client, the
            name and the options; ``""``: the method is called as the kind.
        args: Sample arguments for the factory, after the name.
        kwargs: Sample options for it.
        part: The attribute of what the factory gives that is acquired (``"read"`` of an rwlock); ``""``: itself.
        names: How many names it takes; more than 1 are given to the factory as one list.
        family: Primitives of one family keep each other out when they have one name (they share its keys).
        leases: Whether ``acquire`` gives a lease. A latch and a barrier have none.
        capacity: How many leases of one name may be held at once; None: any number (readers).
        fifo: Whether waiters are served strictly in the order in which they came.
        reentrant: Whether its holder may take it again.
        adopt: Whether ``detach`` and ``adopt`` pass a lease on to another process.
        inspects: Whether ``client.inspect(name)`` shows its holders.
        record: The primitive of a name for a caller that has only the kind and the name, as the list of locks: made of the
            namespace, the name and the options of the client. None: it is in no such list. Of a primitive that is no
            lock, its ``kind``, ``name``, ``key`` and ``inspect`` are asked for; ``peek`` and ``force`` where an operator
            may take it away.
        redlock: Whether a majority of independent nodes can keep it.
    """

    kind: str
    summary: str
    factory: str | Callable[..., Any] = ""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    part: str = ""
    names: int = 1
    family: str = ""
    leases: bool = True
    capacity: int | None = 1
    fifo: bool = True
    reentrant: bool = False
    adopt: bool = False
    inspects: bool = False
    record: Record | None = field(default=None, hash=False)
    redlock: bool = False

    def __post_init__(self) -> None:
        """Refuse an entry that contradicts itself."""
        if not self.kind.replace("_", "").isalnum():
            raise ConfigurationError(f"kind {self.kind!r} must be a word of letters, digits and '_'")
        if self.names < 1 or self.capacity == 0:
            raise ConfigurationError(f"{self.kind}: names and capacity must be at least 1")
        object.__setattr__(self, "kwargs", MappingProxyType(dict(self.kwargs)))
        object.__setattr__(self, "factory", self.factory or self.kind)

    @property
    def listed_as(self) -> str:
        """What it is called in lists: its kind; of a part, its family (``"rwlock"``)."""
        return self.family if self.part else self.kind

    @property
    def exclusive(self) -> bool:
        """Whether a holder keeps every other member of its family out."""
        return self.capacity == 1

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

    def of(self, namespace: str, name: str, options: LockOptions) -> Primitive | None:
        """The primitive of a name for who looks at it; None if there can be none."""
        try:
            return self.record and self.record(namespace, name, options)
        except (ConfigurationError, NotSupported):
            return None


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


def beside_locks() -> list[str]:
    """What the name of a lock may be held as by something that is no lock, as lists call it."""
    listed = [one.listed_as for one in REGISTRY.values() if one.record and one.family != "mutex"]
    return list(dict.fromkeys(listed))


_LOCK: dict[str, Any] = {"family": "mutex", "adopt": True, "inspects": True}
_RWLOCK: dict[str, Any] = {"factory": "rwlock", "family": "rwlock", "reentrant": True}
_GATE: dict[str, Any] = {"args": (3,), "leases": False, "capacity": None, "fifo": False}


def _add(kind: str, summary: str, record: Record | None = None, **more: Any) -> None:
    register(Entry(kind, summary, record=record, **more))


_add("lock", "One owner at a time.", partial(mutex, "lock"), redlock=True, **_LOCK)
_add(
    "rlock", "One owner, any number of times.", partial(mutex, "rlock"), redlock=True, reentrant=True, **_LOCK
)
_add("fair_lock", "One owner at a time, in strict FIFO order.", partial(mutex, "fair_lock"), **_LOCK)
_add(
    "semaphore",
    "A limited number of owners.",
    semaphore,
    family="semaphore",
    capacity=3,
    kwargs={"permits": 3},
)
_add("rwlock_read", "Readers, while nobody writes.", reader, part="read", capacity=None, **_RWLOCK)
_add("rwlock_write", "One writer, while nobody reads.", writer, part="write", **_RWLOCK)
_add("latch", "A count that goes down to 0, and the clients that wait for that.", **_GATE)
_add("barrier", "Several parties wait until all have arrived; reusable.", **_GATE)
_add("election", "One of several candidates leads, and all can see which.", ballot, leases=False)
_add("once", "The first caller does it, everybody else gets its result.", once, leases=False)
_add("multi_lock", "Several locks as one: all or none.", family="mutex", names=2, fifo=False, redlock=True)
