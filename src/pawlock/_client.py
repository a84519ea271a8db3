"""A client without its methods: what it is made with, and how its engines are made. The same in both APIs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

# The end of the process waits for what is still to be left.
import pawlock._ending  # noqa: F401  # pyright: ignore[reportUnusedImport]
from pawlock._factory import Settings, live_clients
from pawlock._hints import Hinting
from pawlock._quorum import Destination
from pawlock._service import Book
from pawlock._target import shown_of
from pawlock.core.client import make_engine, weak_suspect_all
from pawlock.core.timed_runtime import observe

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.observers import Observer
    from pawlock.model import ServerReport
    from pawlock.redlock.options import RedlockOptions
    from pawlock.runtimes.aio import AsyncioRuntime
    from pawlock.runtimes.threads import ThreadRuntime
    from pawlock.topology.credentials import Credentials
    from pawlock.topology.endpoint import Target

__all__ = ["BaseClient"]


class BaseClient(Hinting):
    """What both clients have, from the options to the end.

    Attributes:
        _engines: The engine for threads, by None, or that of each event loop.
    """

    _may_be_async: ClassVar[bool]

    def __init__(
        self,
        target: object = None,
        *,
        namespace: str | None = None,
        credentials: Credentials | None = None,
        redlock: RedlockOptions | None = None,
        **defaults: Any,
    ) -> None:
        self._settings = Settings(defaults, namespace, may_be_async=self._may_be_async)
        made_with = {"namespace": namespace, "credentials": credentials, "redlock": redlock}
        self._origin = (target, {**made_with, **defaults})
        self._destination = Destination(self._origin, self._settings)
        self._engines: dict[Any, Engine] = {}
        self._observers: list[Observer] = []
        self._closed = False
        self._book = Book()
        live_clients.add(self)

    def __repr__(self) -> str:
        closed = " closed" if self._closed else ""
        where = f" {shown}" if (shown := self._destination.shown) else ""
        return f"<{type(self).__name__}{where} namespace={self._settings.namespace!r}{closed}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: connect in the other process, or pass a lock")

    def _make(
        self,
        here: object,
        target: Target,
        runtime: AsyncioRuntime | ThreadRuntime,
        background: ThreadRuntime,
        show: Callable[[Any], object],
    ) -> Engine:
        settings = self._settings
        engine = make_engine(runtime, background, self, settings.names(), settings.watcher())
        engine.reports.show = show
        options = settings.options
        engine.request_timeout = options.request_timeout
        for one in (runtime, background):
            one.request_timeout, one.connect_timeout = options.request_timeout, options.connect_timeout
        engine.health.server = shown_of(target)
        if settings.redlock is not None:
            # Each master is asked when it is met, and a majority remembers; each may have another value at a key.
            engine.validity = settings.redlock.valid_until
        else:
            engine.health.explain_keys = settings.engine.explain_keys
            probe = partial(settings.engine.probe, settings.namespace)
            engine.health.probe = None if probe() is None else probe
        runtime.on_move = background.on_move = weak_suspect_all(engine)
        # Two threads may be here at once: what the first has made is for all.
        engine = self._engines.setdefault(here, engine)
        for observer in self._observers:
            observe(engine, observer)
        engine.closed |= self._closed
        return engine

    def _reports(self) -> list[ServerReport]:
        from pawlock._doctor import examine

        options, namespace = self._settings.options, self._settings.namespace
        return examine(self._destination.find(settled=True), ttl=options.ttl, namespace=namespace)

    def _observe(self, observer: Observer) -> None:
        if observer not in self._observers:
            self._observers.append(observer)
        for engine in self._known_engines():
            observe(engine, observer)

    def _known_engines(self) -> list[Engine]:
        return list(self._engines.values())

    def _after_fork(self) -> None:
        self._book.after_fork()
        for engine in self._known_engines():
            engine.after_fork()
