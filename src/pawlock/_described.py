"""What a client makes: a description that holds nothing itself, and goes on elsewhere as text. The same in both APIs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from pawlock._hints import Hinting, made_by_client, refuse_construction, refuse_words
from pawlock._inside import is_closed, origin_of, settings_of
from pawlock._template import make
from pawlock._unset import UNSET
from pawlock.core.options import check_timeout
from pawlock.errors import NotSupported

__all__ = ["Described", "Origin", "Source"]

Origin = tuple[object, dict[str, Any]]
"""What a client was made with."""

Source = tuple[str, tuple[Any, ...], Any]
"""How a client makes it again: by which method, with which arguments and options."""

_revived: dict[tuple[Any, ...], Any] = {}


class Described(Hinting):
    """The description of a lock, a latch or an election: immutable, picklable, shared by all threads and tasks."""

    __slots__ = ("__weakref__", "_client", "_entered", "_plan", "_source")
    _client: Any
    _plan: Any
    _source: Source
    _entered: list[Any]

    if TYPE_CHECKING:

        def __init__(self, client: Any, plan: Any, source: Source) -> None: ...

    else:
        # Called by hand, with a name.
        def __init_subclass__(cls, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            if "__init__" in cls.__dict__:
                cls.__init__ = made_by_client(cls.__init__)

        def __init__(self, client: Any, plan: Any = None, source: Any = None, **_: Any) -> None:
            if source is None:
                refuse_construction(type(self))
            self._client = client
            self._plan = plan
            self._source = source
            # For what has blocks. In a class of its own, each lock that is made would pay for one more call.
            self._entered = []

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._plan.primitive.name)

    def _asked(
        self, plan: Any, timeout: Any, ttl: Any = None, unknown: Iterable[str] = ()
    ) -> tuple[Any, float | None]:
        """The plan of one call, and for how many seconds it waits."""
        if unknown:
            refuse_words("acquire", unknown)
        if ttl is not None:
            plan = settings_of(self._client).with_ttl(plan, ttl)
        return plan, plan.options.timeout if timeout is UNSET else check_timeout(timeout)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r:.200}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        target, defaults = origin_of(self._client)
        if target is not None and not isinstance(target, str):
            raise _NotPicklable(
                "cannot pickle this lock: only locks of a client that was connected by URL can be pickled"
            )
        return _revive, (type(self._client), (target, defaults), *self._source)


class _NotPicklable(NotSupported, TypeError):
    """A lock whose client cannot be made again elsewhere."""


def _revive(client_class: type, origin: Origin, kind: str, args: tuple[Any, ...], given: Any) -> Any:
    """The same again, on a client that all unpickled objects of one origin share in this process."""
    target, defaults = origin
    # The text of the whole shows no credentials.
    key = (client_class, repr(origin), defaults.get("credentials"))
    client = _revived.get(key)
    if client is None or is_closed(client):
        client = _revived[key] = client_class(target, **defaults)
    return make(client, kind, args, given)
