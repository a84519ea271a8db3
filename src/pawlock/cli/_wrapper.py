"""What `pawlock run` and `pawlock once` do: wait for a lease, run a command under it, give the lease back.

Two processes: this one, which holds the lease (the library renews it), and the command. TERM and KILL reach the command while
the lease is still ours. Who is stopped cannot end anything: that is for the fencing token.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pawlock._system import now
from pawlock.cli._child import Child
from pawlock.cli._common import Signalled, given_name, moment, readable
from pawlock.cli._signals import ENDING, SignalPipe
from pawlock.cli._terminal import Terminal
from pawlock.cli.exits import Exit, clear_status, code_of, ended_by, explained, is_terminal, say, show_status
from pawlock.cli.show import find
from pawlock.errors import ConfigurationError, LeaseLost, NotAcquired, NotHeld, PawlockError

if TYPE_CHECKING:
    import pawlock

__all__ = ["Job", "Turn", "check_kill_after", "run_job"]

T = TypeVar("T")

_TICK, _SOON, _CLOSE_FOR, _FRESH = 1.0, 0.05, 2.0, 0.9
_KILL_AFTER, _USUAL_SHARE, _LARGEST_SHARE = 5.0, 6, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked for.

    Attributes:
        name: Of the lock, or whatever the lease is for.
        command: Program and arguments.
        url: Where; None for what `pawlock.connect` finds.
        client: Other arguments of `pawlock.connect` that were given.
        options: Arguments of the lock that were given.
        limit: The timeout of an acquisition, if one was given.
        conflict: Exit code when another has it.
        kill_after: Seconds between TERM and KILL; None for a sixth of the ttl, 5 s at most.
        kills: Whether a lease that is lost ends the command.
        elects: Whether it is the lead of an election that is wanted, again whenever it was lost.
        quiet: Say nothing but errors.
        verbose: Say what happens.
    """

    name: str
    command: Sequence[str]
    url: str | None
    client: Mapping[str, Any]
    options: Mapping[str, Any]
    limit: Mapping[str, Any]
    conflict: int = Exit.CONFLICT
    kill_after: float | None
    kills: bool = True
    elects: bool = False
    quiet: bool
    verbose: bool


def check_kill_after(kill_after: float | None, ttl: float, *, kills: bool = True) -> float:
    """How long the command has between TERM and KILL, which must both come while the lease is still ours.

    The lease is renewed each third of its ttl. TERM comes `kill_after` before it ends unrenewed, so what is left for
    renewals that fail is the ttl less a third and `kill_after`: a third at least.

    Args:
        kill_after: What was asked for; None for a sixth of the ttl, 5 s at most.
        ttl: The ttl of the lease.
        kills: Whether a lease that is lost ends the command.

    Raises:
        ConfigurationError: It does not fit into the lease.
    """
    if kill_after is None:
        return min(_KILL_AFTER, ttl / _USUAL_SHARE)
    if kills and kill_after > ttl / _LARGEST_SHARE:
        raise ConfigurationError(
            f"--kill-after {kill_after:g} exceeds a third of the TTL ({ttl:g} s): pass "
            f"--ttl {kill_after * _LARGEST_SHARE:g} or more, or --kill-after {ttl / _LARGEST_SHARE:.3g} or less"
        )
    return kill_after


def run_job(job: Job, turn: type[Turn]) -> int:
    """Do it; to be called once in a process.

    Returns:
        The exit code for the shell.
    """
    signals, terminal, led = SignalPipe(), Terminal(), False
    try:
        while True:
            this = turn(job, signals, terminal)
            code = this.run()
            led = led or this.lease is not None
            # Before the first lead it is more likely a wrong address than an outage.
            outage = led and this.lease is None and code in (Exit.UNAVAILABLE, Exit.LOST)
            signals.raises = True
            asked = not ENDING.isdisjoint(signals.wait(0))  # since the command ended
            if asked or not job.elects or not (outage or this.was_lost):
                return code
            time.sleep((2.0 if outage else 0.2) * random.uniform(0.5, 1.5))  # noqa: S311  # not all at one instant
    except Signalled as signalled:
        return ended_by(signalled.number)


class Turn:
    """One lease, and the command under it.

    Attributes:
        job: What was asked for.
        lease: The lease, once it was granted.
        kind: As what the name is taken, but for an election.
        asked: Whether a signal asked the command to end.
        was_lost: Whether it was ended for the sake of the lease, and nobody asked it to end.
    """

    kind: str = "lock"

    def __init__(self, job: Job, signals: SignalPipe, terminal: Terminal) -> None:
        self.job, self._signals, self._terminal = job, signals, terminal
        self.lease: pawlock.Lease | None = None
        self.was_lost = self.asked = False
        self._kill_after = 0.0
        self._max_hold: float | None = None
        self._hold_until = self._kill_at = self._kill_by = math.inf
        self._lost = self._ending = False
        self._passed_on: set[int] = set()

    # Waiting --------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Wait for the lease, run the command, and give the lease back."""
        from pawlock import connect

        job, began = self.job, now()
        with contextlib.ExitStack() as stack:
            client = connect(job.url, **job.client)
            stack.callback(client.close, timeout=_CLOSE_FOR)
            try:
                with self._status(client):
                    lease = self.take(client)
                    if not isinstance(lease, int) and lease.remaining() < lease.ttl * _FRESH:
                        # One that was handed over has the short life of a place in the queue until its first renewal.
                        lease.extend(lease.ttl)
            except NotAcquired as error:
                if not job.quiet:
                    holder = error.holder or self.holding(client)[0]
                    text = f"{job.name!r} is held by {holder} [{error.code}]" if holder else str(error)
                    say(text, colour="yellow", event="busy", name=job.name, holder=holder)
                return job.conflict
            except (PawlockError, OSError) as error:
                say(explained(error), colour="red")
                return code_of(error)
            if isinstance(lease, int):
                return lease
            self._signals.wait(0)  # what came before is not for the command
            self._signals.raises = False
            self.lease = lease
            if job.verbose:
                waited = round(now() - began, 3)
                said = f"holding {lease.name!r} with fence {lease.fence} after {waited:.2f} s"
                say(said, colour="dim", event="held", name=lease.name, fence=lease.fence, waited=waited)
            return self._supervise(lease)

    def take(self, client: pawlock.Client) -> pawlock.Lease | int:
        """Wait for the lease; the exit code where there is nothing to do."""
        if self.job.elects:
            return self.settle(client.election).campaign(**self.job.limit)
        return self.settle(client.lock).acquire(**self.job.limit)

    def settle(self, make: Callable[..., T]) -> T:
        """Make what the lease is taken of, once its options are known to fit."""
        from pawlock._inside import plan_behind

        name = given_name(self.job.name)
        settled = plan_behind(make(name, **self.job.options)).options
        self._kill_after = check_kill_after(self.job.kill_after, settled.ttl, kills=self.job.kills)
        self._max_hold = settled.max_hold
        # The command is ended then, and the lease is renewed until it is gone; the library would stop renewing.
        return make(name, **{**self.job.options, "max_hold": None, "on_lost": self._signals.wake})

    @contextlib.contextmanager
    def _status(self, client: pawlock.Client) -> Generator[None]:
        """Say meanwhile what is waited for: at a terminal each second, and with -v when that changes."""
        over, began, name = threading.Event(), now(), self.job.name

        def show() -> None:
            said: tuple[str, object] | None = None
            while not over.wait(_TICK):
                holder, since = self.holding(client)
                by = f", held by {readable(holder)}" if holder else ""
                at = f" since {moment(since)}" if holder and since else ""
                if over.is_set():
                    return
                if self.job.verbose and (holder, since) != said:
                    said = holder, since
                    fields = {"event": "waiting", "name": name, "holder": holder, "since": since}
                    say(f"waiting for {name!r}{by}{at}", colour="dim", **fields)
                # A line of a terminal is short: of the moment, the time of the day.
                at = at.replace(f" {time.strftime('%Y-%m-%d')} ", " ").rpartition(" ")[0]
                show_status(f"waiting for {name!r}{by}{at} … ({now() - began:.0f} s)")

        if (is_terminal() and not self.job.quiet) or self.job.verbose:
            threading.Thread(target=show, name="pawlock-status", daemon=True).start()
        try:
            yield
        finally:
            over.set()
            clear_status()

    def holding(self, client: pawlock.Client) -> tuple[str, float | None]:
        """Ask who has it, and since when: a courtesy to the one who waits.

        The acquisition says what is wrong with the server.
        """
        kind = "election" if self.job.elects else self.kind
        with contextlib.suppress(PawlockError):
            if kind == "lock":
                found = [client.inspect(given_name(self.job.name), waiters=0)]
            else:
                found = [info for info in find(client, self.job.name, 0) if info.kind == kind]
            if found and found[0].held:
                return found[0].holder or "a program that is not pawlock", found[0].since
        return "", None

    # Running --------------------------------------------------------------------------------------------------------

    def _supervise(self, lease: pawlock.Lease) -> int:
        if self._max_hold is not None:
            self._hold_until = now() + self._max_hold
        given = {"LOCK_NAME": lease.name, "FENCE": lease.fence, "TTL_MS": round(lease.ttl * 1000)}
        environment = {f"PAWLOCK_{name}": str(value) for name, value in given.items()}
        try:
            lease.check()  # we may have been stopped since it was granted
            child = Child(self.job.command, environment, self._terminal)
        except LeaseLost as lost:
            say(explained(lost), colour="red", event="lost", name=lease.name, reason=str(lost.reason))
            self.was_lost = True
            return Exit.LOST
        except OSError as error:
            self._release(lease, None)
            say(f"{self.job.command[0]}: {error.strerror}", colour="red")
            return Exit.NOT_FOUND if isinstance(error, FileNotFoundError) else Exit.NOT_EXECUTABLE
        self._signals.take(signal.SIGTSTP)  # from now on it is for the command
        try:
            self._watch(lease, child)
        except BaseException:
            child.kill()
            raise
        return self._finish(lease, child)

    def _watch(self, lease: pawlock.Lease, child: Child) -> None:
        came: list[int] = []
        while True:
            # Before anything else: we may have been stopped for longer than the lease is good for.
            self._check(lease, child)
            for number in came:
                if number == signal.SIGCONT:
                    self._resume(child)
                elif number != signal.SIGCHLD:
                    self._passed_on.add(number)
                    child.signal(number)
            if stopped := child.reap():
                self._stopped(stopped, lease, child)
            if child.is_gone() if self._ending else child.code is not None:
                return
            term = min(self._hold_until, self._kill_by - self._kill_after)
            came = self._signals.wait(_SOON if self._ending else min(_TICK, max(0.0, term - now())))

    def _check(self, lease: pawlock.Lease, child: Child) -> None:
        """See that the command ends while the lease is ours: at max_hold, and when it is not renewed."""
        at = now()
        try:
            lease.check()
            if self.job.kills:
                self._kill_by = at + lease.remaining() - min(0.1, lease.ttl / 50)
        except LeaseLost as lost:
            if not self._lost:
                self._end(
                    f"was lost ({lost.reason})", str(lost.reason), lease, child if self.job.kills else None
                )
            self._lost, self._hold_until = True, math.inf
        if at >= self._hold_until:
            # It is renewed until the command is gone: the next holder is not to meet it.
            self._end(f"was held for {self._max_hold:g} s (max_hold)", "max_hold", lease, child)
        elif at >= self._kill_by - self._kill_after:
            self._end("was not renewed in time (unreachable)", "unreachable", lease, child)
        if self._ending and at >= min(self._kill_at, self._kill_by):
            child.kill()

    def _end(self, why: str, reason: str, lease: pawlock.Lease, child: Child | None) -> None:
        """End the command, once, and say why."""
        if not self._ending:
            then = "the command keeps running without it" if child is None else "ending the command"
            said = f"the lease of {lease.name!r} {why}: {then}"
            say(said, colour="red", event="lost", name=lease.name, reason=reason)
            if child is not None:
                self._ending, self._kill_at = True, now() + self._kill_after
                child.end()

    # The terminal ---------------------------------------------------------------------------------------------------

    def _stopped(self, number: int, lease: pawlock.Lease, child: Child) -> None:
        """The command's group was stopped: by the terminal, which concerns us, or by somebody's SIGSTOP."""
        if not self._terminal.exists or number == signal.SIGSTOP:
            return  # keep the lease: it was stopped for a reason, and may be resumed
        if number in (signal.SIGTTIN, signal.SIGTTOU) and self._terminal.is_ours:
            self._terminal.give(child.pid)
            child.signal(signal.SIGCONT)
            return
        self._terminal.take_back(child.pid)
        if not self.job.quiet:
            say(f"stopped; the lock expires if this lasts longer than {max(0.0, lease.remaining()):.0f} s")
        # The shell shows a job as stopped when all of its group is; a group that nobody could wake is left alone.
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(0, signal.SIGTSTP)
        self._signals.take(signal.SIGTSTP)
        self._check(lease, child)
        self._resume(child)

    def _resume(self, child: Child) -> None:
        if not self._lost:
            self._terminal.give_unasked(child.pid)
            child.signal(signal.SIGCONT)

    # The end --------------------------------------------------------------------------------------------------------

    def _finish(self, lease: pawlock.Lease, child: Child) -> int:
        code = child.code or 0
        self.asked = not self._passed_on.isdisjoint(ENDING)
        mine = not self._lost and self._release(lease, code)
        had_terminal = self._terminal.take_back(child.pid)
        if self._ending or (not mine and self.job.kills):
            self.was_lost = not self.asked
            return Exit.LOST
        if had_terminal and -code in (signal.SIGINT, signal.SIGQUIT) and -code not in self._passed_on:
            # The Ctrl-C went to the command's group alone; a script around us expects it as well.
            signal.signal(-code, signal.SIG_IGN)
            os.killpg(0, -code)
        return ended_by(-code) if code < 0 else code

    def _release(self, lease: pawlock.Lease, code: int | None) -> bool:
        """Give the lease back; False when it turns out not to have been ours any more."""
        self._signals.raises = True  # a second signal ends the wait for a server that is away
        try:
            self.give_back(lease, code)
        except (NotHeld, LeaseLost) as error:
            say(f"the lease of {lease.name!r} was lost before the command ended: {error}", colour="red")
            return False
        except PawlockError as error:
            if not self.job.quiet:
                say(str(error), colour="yellow")
        return True

    def give_back(self, lease: pawlock.Lease, code: int | None) -> None:  # noqa: ARG002  # a result elsewhere
        """Give the lease back. The code is what the command ended with; None if it was not run."""
        if not self._ending:  # else the client does so as it closes: it waits for no server that is away
            lease.release()
