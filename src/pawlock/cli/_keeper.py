"""The thread that talks to the server, so that the main thread never waits for a network."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pawlock.cli._nested import refuse_nested, state_of_once

if TYPE_CHECKING:
    import pawlock

__all__ = ["Keeper", "LockRequest"]

_CLOSE_FOR = 2.0
_LOOK_EVERY = 1.0
_FRESH = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """A lock to acquire, and its options.

    Attributes:
        name: Its name.
        url: Where; None for what `pawlock.connect()` finds.
        defaults: Arguments of `pawlock.connect` that were given.
        options: Arguments of `client.lock` that were given.
        timeout: Seconds to wait; 0 tries once; None waits for as long as the client's default says.
        kind: "lock"; "election" for the lead of one; "once" for the start of what is done once.
    """

    name: str
    url: str | None
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeout: float | None = None
    kind: str = "lock"


class Keeper:
    """Acquires the lock, keeps it until asked to release it, and records how each went.

    Attributes:
        lease: The lease, once it was granted.
        error: What went wrong while taking or releasing; None so far.
        over: Whether the thread has nothing more to do.
        holder: Who holds the lock, as far as was heard while waiting.
        max_hold: After how many seconds the command is to be ended; None for never.
        done: What came of it, if it was done once before.
        result: What to record when it is let go; None records nothing. Only for what is done once.

    Args:
        request: The lock that is wanted.
        wake: Called after each change, to wake the main loop.
        check_ttl: Called with the ttl before anything is sent to the server; raises if it cannot work.
    """

    def __init__(
        self,
        request: LockRequest,
        wake: Callable[[], object],
        check_ttl: Callable[[float], object] = lambda _: None,
    ) -> None:
        self.lease: pawlock.Lease | None = None
        self.error: BaseException | None = None
        self.over = False
        self.holder = ""
        self.max_hold: float | None = None
        self.done: pawlock.Done | None = None
        self.result: bytes | None = None
        self._request = request
        self._wake = wake
        self._check_ttl = check_ttl
        self._client: pawlock.Client | None = None
        self._started: pawlock.Started | None = None
        self._guard = threading.Lock()
        self._stopped = False
        self._let_go = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pawlock-run", daemon=True)
        self._holder_thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to acquire the lock; ``wake`` is called after each change."""
        self._thread.start()

    def let_go(self, patience: float | None = None) -> bool:
        """Release the lock, and wait until the server has said so.

        Args:
            patience: Seconds to wait; None for as long as one release takes at most.

        Returns:
            False when the server did not say so in time: the lock frees itself at the end of its ttl.
        """
        self._let_go.set()
        self._thread.join(_CLOSE_FOR * 2 if patience is None else patience)
        return not self._thread.is_alive()

    def give_up(self) -> bool:
        """Stop waiting and leave nothing behind: at once, or within seconds when the server is gone.

        Returns:
            False when the server did not answer in time: the ticket expires by itself.
        """
        with self._guard:
            self._stopped = True
            client = self._client
        self._let_go.set()
        if client is not None:
            # What goes wrong here shows below, as a thread that still lives.
            with contextlib.suppress(Exception):
                client.close(timeout=_CLOSE_FOR)
        # Without a client nothing was sent, and connecting may take its time: nobody has to wait for that.
        self._thread.join(_CLOSE_FOR if client is not None else 0.0)
        return not self._thread.is_alive() or client is None

    def listen_for_holder(self) -> None:
        """Begin to ask, on a thread of its own, who holds the lock."""
        if self._holder_thread is None:
            self._holder_thread = threading.Thread(target=self._ask, name="pawlock-holder", daemon=True)
            self._holder_thread.start()

    def _run(self) -> None:
        try:
            self._keep()
        except BaseException as error:  # noqa: BLE001  # the main thread asks for it and reports it
            self.error = error
        finally:
            self.over = True
            self._wake()

    def _keep(self) -> None:
        import pawlock

        request = self._request
        client = pawlock.connect(request.url, **request.defaults)
        with self._guard:
            if self._stopped:
                client.close()
                return
            self._client = client
        try:
            try:
                lease = self._take(client)
            except pawlock.AcquireTimeout as late:
                if not late.holder:
                    self._learn_holder(client)
                raise
            if lease is None:
                return
            if lease.remaining() < lease.ttl * _FRESH:
                # One that was handed over has the short life of a place in the queue until its first renewal.
                self._extend(lease)
            self.lease = lease
            self._wake()
            self._let_go.wait()
            if self._started is None or self.result is None:
                lease.release()
            else:
                self._started.finish(self.result)
        finally:
            client.close(timeout=_CLOSE_FOR)

    def _extend(self, lease: pawlock.Lease) -> None:
        try:
            lease.extend(lease.ttl)
        except BaseException:
            lease.release()
            raise

    def _take(self, client: pawlock.Client) -> pawlock.Lease | None:
        from pawlock._inside import plan_behind
        from pawlock.cli._common import given_name

        request = self._request
        options: dict[str, Any] = {**request.options, "on_lost": self._on_lost}
        make: Any = {"election": client.election, "once": client.once}.get(request.kind, client.lock)
        settled = plan_behind(make(given_name(request.name), **options)).options
        self._check_ttl(settled.ttl)
        # The command is ended then, and the lease is renewed until it is gone; the library would stop renewing.
        self.max_hold = settled.max_hold
        if request.timeout != 0:
            refuse_nested(client, request.kind, request.name)
        options["max_hold"] = None
        made = make(given_name(request.name), **options)
        limit = {} if request.timeout is None else {"timeout": request.timeout}
        if request.kind == "once":
            return self._begin(made, limit)
        taken: pawlock.Lease = (made.campaign if request.kind == "election" else made.acquire)(**limit)
        return taken

    def _begin(self, made: pawlock.Once, limit: Mapping[str, Any]) -> pawlock.Lease | None:
        """Start what is done once; None when it is done."""
        from pawlock import Done, Running
        from pawlock.core.coordinate.once import running

        state = made.begin(wait=self._request.timeout != 0, **limit)
        if isinstance(state, Done):
            self.done = state
            return None
        if isinstance(state, Running):
            raise running(self._request.name, state)
        self._started = state
        return state.lease

    def _on_lost(self, _: object) -> None:
        self._wake()

    def _ask(self) -> None:
        while self.lease is None and not self._let_go.wait(_LOOK_EVERY):
            client = self._client
            if client is None:
                continue
            self._learn_holder(client)
            self._wake()

    def _learn_holder(self, client: pawlock.Client) -> None:
        from pawlock import PawlockError
        from pawlock.cli._common import given_name

        name = given_name(self._request.name)
        try:
            if self._request.kind == "once":
                self.holder = state_of_once(client, self._request.name).holder
            elif self._request.kind == "election":
                leader = client.election(name).leader()
                self.holder = leader.identity if leader else ""
            else:
                self.holder = client.inspect(name, waiters=0).holder
        except PawlockError:
            # Only a courtesy to the one who waits; the acquire itself says what is wrong with the server.
            self.holder = ""
