"""The process between us and the child: it starts the child, passes signals on, and ends it when it must end.

It is forked before there is any thread and any connection, so that it may fork and exec safely: the client of
the lock has threads, and between a fork and an exec beside threads almost nothing is allowed. Being a process
of its own it also does what the command itself cannot:

- It is a dead man's switch. The command says when the child's group must get TERM and when KILL, so that it is
  gone while the lease is still valid; when these moments pass without news, because the command is stopped or
  hangs, it does so by itself. It has a process group of its own: what stops the command's group leaves it running.
- It ends the child's group when the command is killed (its socket closes, on every system). Should it be
  killed too, the kernel kills the child (PR_SET_PDEATHSIG on Linux; that signal follows the *thread* that
  forked, and this process has only the one).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pawlock.cli._signals import FORWARDED, Dispositions, SignalPipe, clock, readable
from pawlock.cli._terminal import Terminal

__all__ = ["Plan", "Spawner", "messages"]

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY = 0.05
_AFTER_KILL = 1.0
_BY_KILL = 137
# A terminal sends these to the group; so does a service manager that stops a service. The others are
# for the one program that understands them: USR1 would kill every helper of a shell script that traps it.
_FOR_ONE = {getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the spawner gets before there is a lock.

    Attributes:
        command: The child's program and arguments.
        dispositions: Of signals, as the command found them; so the child finds them too.
        mask: Blocked signals, as the command found them.
        terminal: The controlling terminal, or None.
        pipes: Both ends of the pipes that are to be its standard output and error, by descriptor; empty leaves them.
    """

    command: Sequence[str]
    dispositions: Dispositions
    mask: set[int]
    terminal: Terminal | None
    pipes: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])


def messages(link: socket.socket, rest: bytearray) -> list[dict[str, Any]] | None:
    """Receive what has arrived on a link, a JSON object per line; None when the other end is gone."""
    try:
        data = link.recv(65536)
    except (ConnectionError, InterruptedError):
        return None
    if not data:
        return None
    rest += data
    *lines, last = rest.split(b"\n")
    rest[:] = last
    return [json.loads(line) for line in lines]


def _write_message(link: socket.socket, message: Mapping[str, object]) -> None:
    with contextlib.suppress(OSError):  # the other end is gone, which its reader notices for itself
        link.sendall(json.dumps(message).encode() + b"\n")


class Spawner:
    """The command's end: a process that waits to start the child.

    What it reports (see `read`): `{"started": pid}`, `{"failed": errno, "why": text}`, `{"stopped": signal}`,
    `{"not_permitted": True}` when it may not signal the child, and at the end `{"code": n}` or `{"signal": n}`, with
    `"late": True` when it had to end the child by itself.
    """

    def __init__(self, plan: Plan) -> None:
        self._link, theirs = socket.socketpair()
        self._rest = bytearray()
        # A Ctrl-C between the fork and the moment when it ignores the signal is for the command alone.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.pid = os.fork()
        if self.pid == 0:
            self._link.close()
            for read, _ in plan.pipes.values():
                os.close(read)  # its last reader is the command: without that, a write fails
            _serve(theirs, plan)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        for _, write in plan.pipes.values():
            os.close(write)

    def fileno(self) -> int:
        """Let `readable` wait for a report."""
        return self._link.fileno()

    def read(self) -> list[dict[str, Any]] | None:
        """Return the reports that have arrived, waiting for one; None when the spawner was killed."""
        return messages(self._link, self._rest)

    def start(self, environment: Mapping[str, str], *, kill_after: float, grace: float) -> None:
        """Start the child.

        Args:
            environment: Variables that are added to ours.
            kill_after: Seconds between TERM and KILL.
            grace: Seconds between TERM and KILL should the command be killed: less than is left of the lease.
        """
        order = {"do": "start", "environment": dict(environment), "kill_after": kill_after, "grace": grace}
        _write_message(self._link, order)

    def signal(self, number: int) -> None:
        """Send a signal to the child."""
        _write_message(self._link, {"do": "signal", "number": number})
        self._wake()

    def allow_until(self, term: float, kill: float) -> None:
        """Let the child run until these moments on `clock()`, unless later ones come in time: TERM, then KILL."""
        _write_message(self._link, {"do": "allow", "term": term, "kill": kill})

    def end(self) -> None:
        """End the child's group: TERM, and KILL `kill_after` seconds later, or when its lease ends before that."""
        _write_message(self._link, {"do": "end"})
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            # Somebody may have stopped it. It was not waited for yet, so the number is still its own.
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Let the spawner leave, and wait for it. A child that still runs is ended."""
        self._link.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _serve(link: socket.socket, plan: Plan) -> None:
    """Run the spawner. Never returns into the caller's code, which belongs to the command."""
    code = 70
    try:
        _Service(link, plan).run()
        code = 0
    except BaseException as error:  # noqa: BLE001  # whatever it is, it ends here, in this process
        sys.stderr.write(f"pawlock: the supervisor of the command failed: {error!r}\n")
    finally:
        os._exit(code)


class _Service:
    """The spawner's own loop."""

    def __init__(self, link: socket.socket, plan: Plan) -> None:
        ignored = {signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, *FORWARDED}
        for number in ignored:  # they are for the command
            signal.signal(number, signal.SIG_IGN)
        os.setpgid(0, 0)
        self._signals = SignalPipe([signal.SIGCHLD])
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        self._link: socket.socket | None = link
        self._rest = bytearray()
        self._plan = plan
        self._die_with_us = _parent_death_signal()
        self._child = 0
        self._result: dict[str, object] | None = None
        self._term_at: float | None = None
        self._kill_by: float | None = None
        self._kill_after = 0.0
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        self._late = False
        self._not_permitted = False
        self._reported = False
        self._grace = 0.0

    def run(self) -> None:
        while not self._over():
            wanted: list[SignalPipe | socket.socket] = [self._signals, *([self._link] if self._link else [])]
            ready = readable(wanted, self._patience())
            # First of all, whatever else has happened: is the child still allowed to run?
            self._check_deadline()
            if self._signals in ready:
                self._signals.received()
            self._reap()
            if self._link in ready:
                self._handle_orders()
            self._kill_if_due()
            self._report()
        if self._plan.terminal is not None and self._child:
            self._plan.terminal.take_back(self._child)

    def _over(self) -> bool:
        return self._link is None and (not self._child or self._gone())

    def _patience(self) -> float | None:
        if self._kill_at is not None and not self._gone():
            return (
                _LOOK_EVERY if self._killed_at is not None else self._until(self._last_moment(), _LOOK_EVERY)
            )
        if self._term_at is not None and self._result is None:
            return self._until(self._term_at, 1.0)  # 1 s: poll does not count a suspend
        return None

    @staticmethod
    def _until(moment: float, most: float) -> float:
        return max(0.0, min(most, moment - clock()))

    def _last_moment(self) -> float:
        """When what has not ended after TERM gets KILL."""
        assert self._kill_at is not None  # noqa: S101
        return self._kill_at if self._kill_by is None else min(self._kill_at, self._kill_by)

    def _check_deadline(self) -> None:
        if self._term_at is None or self._result is not None or self._kill_at is not None:
            return
        if clock() >= self._term_at:
            self._late = True
            self._end(self._kill_after)

    def _handle_orders(self) -> None:
        assert self._link is not None  # noqa: S101
        orders = messages(self._link, self._rest)
        if orders is None:  # the command is gone, killed or done
            self._link.close()
            self._link = None
            self._end(self._grace)
            return
        for order in orders:
            match order["do"]:
                case "start":
                    self._kill_after, self._grace = order["kill_after"], order["grace"]
                    self._start(order["environment"])
                case "signal":
                    self._send(order["number"])
                case "allow":
                    self._term_at, self._kill_by = order["term"], order["kill"]
                case _:
                    self._end(self._kill_after)

    def _send(self, number: int) -> None:
        if not self._child or self._result is not None:  # reaped: its number may be somebody else's by now
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.kill if number in _FOR_ONE else os.killpg)(self._child, number)

    def _end(self, patience: float) -> None:
        if not self._child or self._kill_at is not None or self._gone():
            return
        self._kill_at = clock() + patience
        self._to_group(signal.SIGTERM)
        self._to_group(signal.SIGCONT)  # one that is stopped would not hear it
        if self._not_permitted and self._link is not None:
            _write_message(self._link, {"not_permitted": True})

    def _to_group(self, number: int) -> bool:
        """Signal the group, also when its leader was reaped: while a member lives, its number stays taken."""
        try:
            os.killpg(self._child, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # all that is left has become another user (sudo): not ours to end
            self._not_permitted = True
            return False
        return True

    def _kill_if_due(self) -> None:
        if self._kill_at is not None and self._killed_at is None and clock() >= self._last_moment():
            self._killed_at = clock()
            self._to_group(signal.SIGKILL)

    def _gone(self) -> bool:
        """Whether the child has ended; while its group is being ended, whether all of the group has."""
        if self._result is None:
            return False
        if self._kill_at is None:
            return True
        # A zombie that nobody reaps (a container without an init) counts as alive: do not wait for it forever.
        waited_enough = self._killed_at is not None and clock() > self._killed_at + _AFTER_KILL
        return waited_enough or not self._to_group(0)

    def _reap(self) -> None:
        while self._child and self._result is None:
            pid, status = os.waitpid(self._child, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                if self._link is not None:
                    _write_message(self._link, {"stopped": os.WSTOPSIG(status)})
            elif os.WIFSIGNALED(status):
                self._result = {"signal": os.WTERMSIG(status)}
            else:
                self._result = {"code": os.WEXITSTATUS(status)}

    def _report(self) -> None:
        if self._link is not None and self._result is not None and not self._reported and self._gone():
            self._reported = True
            _write_message(self._link, {**self._result, "late": self._late})

    def _start(self, environment: Mapping[str, str]) -> None:
        assert self._link is not None  # noqa: S101
        read, write = os.pipe()  # closes at exec; what comes through it before is why there was none
        everything = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        in_front = self._plan.terminal is not None and self._plan.terminal.is_for_child
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            self._become(write, {**os.environ, **environment}, parent, in_front=in_front)
        os.close(write)
        for _, end in self._plan.pipes.values():
            os.close(end)  # it is the child's alone
        signal.pthread_sigmask(signal.SIG_SETMASK, everything)
        with contextlib.suppress(OSError):  # it does the same, and one of us is first
            os.setpgid(child, child)
        with os.fdopen(read, "rb") as pipe:
            failure = pipe.read()
        if failure:
            os.waitpid(child, 0)
            if in_front and self._plan.terminal is not None:
                self._plan.terminal.take_back(child)
            number = int(failure)
            _write_message(self._link, {"failed": number, "why": os.strerror(number)})
            return
        self._child = child
        _write_message(self._link, {"started": child})

    def _become(
        self, error_pipe: int, environment: Mapping[str, str], parent: int, *, in_front: bool
    ) -> None:
        """Run in the child, up to its exec. All signals are blocked, so none is lost between two programs."""
        plan = self._plan
        try:
            signal.set_wakeup_fd(-1)
            for number, action in plan.dispositions.items():
                signal.signal(number, signal.SIG_IGN if action is signal.SIG_IGN else signal.SIG_DFL)
            os.setpgid(0, 0)
            if in_front and plan.terminal is not None:
                plan.terminal.give(os.getpid())
            for stream, (_, end) in plan.pipes.items():
                os.dup2(end, stream)
            self._die_with_us()
            if os.getppid() != parent:  # it died before we asked to die with it
                os._exit(_BY_KILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, plan.mask)
            os.execvpe(plan.command[0], list(plan.command), dict(environment))  # noqa: S606  # this is its purpose
        except OSError as error:
            os.write(error_pipe, str(error.errno or 0).encode())
        finally:
            os._exit(70)


def _parent_death_signal() -> Callable[[], object]:
    """Prepare, before any fork, the call that lets a child die with its parent, where there is one."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    import ctypes

    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return lambda: None
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
