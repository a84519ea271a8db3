"""A proxy that breaks the network on purpose, at exactly the request or reply that a test names.

It understands the protocol, so that one reply is one unit and push messages are not taken for replies.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

from tests.support._link import Conditions, Link
from tests.support._rules import Action, Match, Request, Rule, matches
from tests.support.servers import Server

__all__ = ["Action", "Match", "Proxy", "Request", "Rule"]

T = TypeVar("T")


class Proxy:
    """Stands between clients and a server, on a port of 127.0.0.1, and injects faults on request.

    It works in a thread of its own. Every method may be called from any thread and has taken effect when it
    returns. Rules act on requests that arrive after they were added; of several that match, the first acts,
    and those after it do not count the request.

    What `match` takes, everywhere: None for any request; a `str` or `bytes` for requests whose command it is
    (in any case of letters) or of which any argument contains it, such as a script's SHA or a key; or a
    predicate that is given the `Request`, which runs in the proxy's thread.

    `nth` (from 1) is the first matching request that the rule acts on, and `times` how many from there on: 1
    by default, None for all.
    """

    link: type[Link] = Link
    """What carries a connection, and so knows the protocol."""

    def __init__(self, upstream: Server | str) -> None:
        """Describe a proxy; `start()` or `with` starts it.

        Args:
            upstream: The server: a test `Server`, which may be restarted meanwhile, or a `redis://host:port`
                or `unix://path` URL.

        Raises:
            ValueError: the URL is of another kind.
        """
        self._upstream = _resolver(upstream)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._conditions = Conditions(self._upstream)
        self._listener: socket.socket | None = None
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0
        self._accepted = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---------------------------------------------------------------- life

    def start(self) -> Self:
        """Begin to listen.

        Returns:
            The proxy itself.

        Raises:
            RuntimeError: it runs already.
        """
        if self._thread is not None:
            raise RuntimeError("the proxy is already running")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pawlock-proxy", daemon=True)
        self._thread.start()
        self._conditions = Conditions(self._upstream)
        self._call(self._begin())
        return self

    def stop(self) -> None:
        """Cut every connection and end. Does nothing when it does not run.

        Raises:
            ExceptionGroup: the proxy itself failed, so that what the test saw is not what it asked for.
        """
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._call(self._finish())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = self._thread = None
        if self._conditions.errors:
            raise ExceptionGroup("the proxy failed", self._conditions.errors)

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1."""
        return self._port

    @property
    def url(self) -> str:
        """URL for a client."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def accepted(self) -> int:
        """How many connections were made so far."""
        return self._accepted

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._links)

    def requests(self, match: Match = None) -> list[Request]:
        """List the requests that came from clients so far, in the order in which they came.

        Args:
            match: Only those, see the class.
        """
        return [request for request in list(self._conditions.requests) if matches(match, request)]

    # ---------------------------------------------------------------- one request, one reply

    def drop_request(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Lose a request: the server never sees it, the connection stays and stays silent."""
        return self._add(Action.DROP_REQUEST, match, nth, times)

    def hold_request(
        self, match: Match = None, *, seconds: float | None = None, nth: int = 1, times: int | None = 1
    ) -> Rule:
        """Deliver a request late, also when its client has given up and gone meanwhile.

        Args:
            match: See the class.
            seconds: How late. None: when the rule is released. Later requests of the connection wait behind.
            nth: See the class.
            times: See the class.

        Returns:
            The rule; it counts a hit when it begins to hold.
        """
        return self._add(Action.HOLD_REQUEST, match, nth, times, seconds)

    def reset(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Reset the client's connection instead of carrying the request: the server never sees it."""
        return self._add(Action.RESET, match, nth, times)

    def duplicate_request(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Have the server execute a request twice in a row; both replies go back."""
        return self._add(Action.DUPLICATE_REQUEST, match, nth, times)

    def duplicate_request_late(
        self, match: Match = None, *, seconds: float | None = None, nth: int = 1, times: int | None = 1
    ) -> Rule:
        """Have the server execute a request again later, over another connection; that reply is dropped.

        Args:
            match: See the class.
            seconds: How much later. None: when the rule is released.
            nth: See the class.
            times: See the class.

        Returns:
            The rule; it counts a hit when the server has executed the second copy.
        """
        return self._add(Action.DUPLICATE_REQUEST_LATE, match, nth, times, seconds)

    def swallow_reply(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Lose the reply to a request that the server has executed; the connection stays."""
        return self._add(Action.SWALLOW_REPLY, match, nth, times)

    def kill_on_reply(self, match: Match = None, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Reset the client's connection when the server has executed the request, in place of its reply."""
        return self._add(Action.KILL_ON_REPLY, match, nth, times)

    def hold_reply(
        self, match: Match = None, *, seconds: float | None = None, nth: int = 1, times: int | None = 1
    ) -> Rule:
        """Deliver the reply to a request late.

        Args:
            match: See the class.
            seconds: How late. None: when the rule is released. Later replies of the connection wait behind.
            nth: See the class.
            times: See the class.

        Returns:
            The rule; it counts a hit when it begins to hold, so the server has executed the request then.
        """
        return self._add(Action.HOLD_REPLY, match, nth, times, seconds)

    def cut_push(self, match: Match = None, *, nth: int = 1, times: int | None = None) -> Rule:
        """Lose push messages (subscriptions, invalidations); all from now on by default.

        `match` is about the message: its kind (`message`), its channel, its text.
        """
        return self._add(Action.CUT_PUSH, match, nth, times)

    def wait_hit(self, rule: Rule, timeout: float = 5.0, *, hits: int = 1) -> None:
        """Wait until a rule has acted.

        Args:
            rule: Which.
            timeout: Seconds to wait.
            hits: How often it must have acted.

        Raises:
            TimeoutError: it did not.
        """
        rule.wait(timeout, hits=hits)

    def clear(self) -> None:
        """Remove every rule, release what they hold, and let the network work again."""
        for rule in list(self._conditions.rules):
            rule.remove()
        self._conditions.rules.clear()
        self.delay()
        self.trickle(0.0)
        self.blackhole(on=False)
        self.refuse(on=False)

    # ---------------------------------------------------------------- the whole network

    def delay(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """Make the network slow, for every connection.

        Args:
            requests: Seconds that each request takes to the server.
            replies: Seconds that each reply or message takes back. Order is kept; what is sent together
                arrives together.
        """
        self._conditions.request_delay, self._conditions.reply_delay = requests, replies

    def trickle(self, seconds: float) -> None:
        """Carry what comes back one byte at a time, for every connection.

        Args:
            seconds: The pause after each byte; 0: replies come whole again.
        """
        self._conditions.trickle = seconds

    def blackhole(self, *, on: bool = True) -> None:
        """Carry nothing in either direction: connections are accepted and live, and nobody says a word.

        Args:
            on: False: what was sent meanwhile arrives now.
        """
        flow = self._conditions.flow
        self._call(_soon(flow.clear if on else flow.set))

    def refuse(self, *, on: bool = True) -> None:
        """Refuse new connections, as a host does on which nothing listens. Those that exist go on.

        Args:
            on: False: accept again, on the same port.
        """
        self._call(self._unlisten() if on else self._listen())

    def reset_all(self) -> int:
        """Reset every connection there is.

        Returns:
            How many there were.
        """
        return self._call(self._reset_all())

    # ---------------------------------------------------------------- in the proxy's thread

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("the proxy is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30.0)

    def _add(
        self, action: Action, match: Match, nth: int, times: int | None, seconds: float | None = None
    ) -> Rule:
        rule = Rule(action, match, nth=nth, times=times, seconds=seconds)
        self._call(_soon(lambda: self._conditions.rules.append(rule)))
        return rule

    async def _begin(self) -> None:
        self._conditions.flow.set()
        await self._listen()

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self._port))
            self._listener.setblocking(False)
            self._port = self._listener.getsockname()[1]
            asyncio.get_running_loop().add_reader(self._listener, self._take, self._listener)

    async def _unlisten(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _take(self, listener: socket.socket) -> None:
        """Take a connection, in one step: a stream server loses one that it accepts in the instant of its closing."""
        try:
            sock, _ = listener.accept()
        except OSError:
            # Its client has gone again.
            return
        sock.setblocking(False)
        self._accepted += 1
        task = asyncio.get_running_loop().create_task(self._carry(sock, self._accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, sock: socket.socket, number: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            raise
        link = self.link(self._conditions, number, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        except OSError:
            # The network between the proxy and the server broke: for the client that is what it looks like.
            link.reset()
        except asyncio.CancelledError:
            link.reset()
            raise
        except Exception as error:  # noqa: BLE001 - reported by `stop()`, to the test
            self._conditions.errors.append(error)
            link.reset()
        finally:
            self._links.discard(link)

    async def _reset_all(self) -> int:
        links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    async def _finish(self) -> None:
        await self._unlisten()
        for rule in self._conditions.rules:
            rule.remove()
        # A task that is cancelled before its first step would not close its socket.
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # Closed connections are let go of in later turns of the loop.
        await asyncio.sleep(0.01)


async def _soon(step: Callable[[], object]) -> None:
    step()


def _resolver(upstream: Server | str) -> Callable[[], str | tuple[str, int]]:
    if isinstance(upstream, Server):
        server = upstream
        return lambda: server.address
    parts = urlsplit(upstream)
    if parts.scheme == "unix":
        path = unquote(parts.path)
        return lambda: path
    if parts.scheme == "redis":
        address = (parts.hostname or "127.0.0.1", parts.port or 6379)
        return lambda: address
    raise ValueError(f"the proxy speaks to redis:// and unix:// URLs, not to {upstream}")
