"""The main loop of `pawlock run`: waits for the lock, then supervises the child until one of them ends."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pawlock.cli._keeper import Keeper, LockRequest
from pawlock.cli._nested import held_around, variable_for
from pawlock.cli._output import Output, Recording
from pawlock.cli._signals import FORWARDED, SignalPipe, clock, readable
from pawlock.cli._spawner import Plan, Spawner
from pawlock.cli._terminal import Terminal
from pawlock.cli.exits import Exit, by_signal, clear_status, code_of, ended_by, is_terminal, say, show_status

__all__ = ["Ended", "Job", "check_kill_after", "run_job", "supervise"]

_TICK = 1.0
_SHOW_AFTER = 1.0
_GRACE = 0.5
_KILL_AFTER = 5.0
_USUAL_SHARE = 6
_LARGEST_SHARE = 3
_MARGIN = 0.1
_MARGIN_SHARE = 50
_ENDS_WAITING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What `pawlock run` was asked to do.

    Attributes:
        request: The lock that is wanted.
        command: The child's program and arguments.
        conflict: Exit code when the lock is held by another.
        kill_after: Seconds between TERM and KILL; None for a sixth of the ttl, 5 s at most.
        on_lost: "kill" or "warn".
        quiet: Say nothing but errors.
        verbose: Say what happens.
        record: What to leave as the result of what is done once; None for a lock and an election.
    """

    request: LockRequest
    command: Sequence[str]
    conflict: int = Exit.CONFLICT
    kill_after: float | None = None
    on_lost: str = "kill"
    quiet: bool = False
    verbose: bool = False
    record: Recording | None = None


class Ended(NamedTuple):
    """How it ended.

    Attributes:
        code: The exit code for the shell.
        lost: Whether the command was ended because the lock was lost, and nobody asked us to end.
        held: Whether the lock was ever held.
    """

    code: int
    lost: bool
    held: bool


def check_kill_after(kill_after: float | None, ttl: float, *, on_lost: str = "kill") -> float:
    """How long the command has between TERM and KILL, which must both come while the lease is still ours.

    The lease is renewed each third of its ttl. TERM comes `kill_after` before it ends unrenewed, so what is left for
    renewals that fail is the ttl less a third and `kill_after`: a third at least.

    Args:
        kill_after: What was asked for; None for a sixth of the ttl, 5 s at most.
        ttl: The ttl of the lease.
        on_lost: "kill" or "warn"; only the first ends the command for the sake of the lease.

    Raises:
        ConfigurationError: It does not fit into the lease.
    """
    from pawlock.errors import ConfigurationError

    if kill_after is None:
        return min(_KILL_AFTER, ttl / _USUAL_SHARE)
    if on_lost == "kill" and kill_after > ttl / _LARGEST_SHARE:
        raise ConfigurationError(
            f"--kill-after {kill_after:g} exceeds a third of the TTL ({ttl:g} s): pass "
            f"--ttl {kill_after * _LARGEST_SHARE:g} or more, or --kill-after {ttl / _LARGEST_SHARE:.3g} or less"
        )
    return kill_after


def run_job(job: Job) -> int:
    """Take the lock, run the command, release the lock.

    Args:
        job: What to do.

    Returns:
        The exit code for the shell.
    """
    return supervise(job).code


def supervise(job: Job) -> Ended:
    """Take the lock, run the command, release the lock. To be called once in a process.

    Args:
        job: What to do.
    """
    names = (*FORWARDED, signal.SIGCHLD, signal.SIGCONT, signal.SIGTTIN, signal.SIGTTOU)
    dispositions = {number: signal.getsignal(number) for number in names}
    # The interpreter ignores these for itself; a child expects the system's default.
    dispositions |= dict.fromkeys((signal.SIGPIPE, signal.SIGXFSZ), signal.SIG_DFL)
    terminal = Terminal.find()
    output = None if job.record is None else Output()
    plan = Plan(
        command=job.command,
        dispositions=dispositions,
        mask={int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, set())},
        terminal=terminal,
        pipes={} if output is None else output.pipes,
    )
    spawner = Spawner(plan)
    try:
        # What was ignored from the start (nohup, a job of a script in the background) stays so, for us and
        # the child.
        heard = [n for n in FORWARDED if dispositions[n] is not signal.SIG_IGN and n is not signal.SIGTSTP]
        signals = SignalPipe([*heard, signal.SIGCONT])
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        wrapper = _Wrapper(job, spawner, signals, terminal, output)
        code = wrapper.run()
        if output is not None:
            output.flush(signals, _ENDS_WAITING)
            if output.write_error is not None and not wrapper.held and not code:
                say(f"the recorded output cannot be written: {output.write_error}", colour="red")
                code = Exit.OUTPUT
        return Ended(code, code == Exit.LOST and wrapper.lost and not wrapper.end_requested, wrapper.held)
    finally:
        spawner.close()


class _Words(NamedTuple):
    it: str
    has: str
    by: str


_HOLDING = _Words("lock", "holding", "held by")
_LEADING = _Words("leadership of", "leading", "led by")
_DOING = _Words("lease of", "started", "being run by")
_WORDS = {"election": _LEADING, "once": _DOING}


class _Wrapper:
    def __init__(
        self,
        job: Job,
        spawner: Spawner,
        signals: SignalPipe,
        terminal: Terminal | None,
        output: Output | None,
    ) -> None:
        self._job = job
        self._spawner = spawner
        self._signals = signals
        self._terminal = terminal
        self._output = output
        self._keeper = Keeper(
            job.request, signals.wake, lambda ttl: check_kill_after(job.kill_after, ttl, on_lost=job.on_lost)
        )
        self._kill_after = 0.0
        self._hold_until: float | None = None
        self._ending = False
        self._kills = job.on_lost == "kill"
        self._child = 0
        self._stopped = False
        self._lost_at: float | None = None
        self._forwarded: set[int] = set()
        self._words = _WORDS.get(job.request.kind, _HOLDING)
        self.lost = False

    @property
    def held(self) -> bool:
        """Whether the lock was ever held."""
        return self._keeper.lease is not None

    @property
    def end_requested(self) -> bool:
        """Whether a signal came that asks to end."""
        return not self._forwarded.isdisjoint(_ENDS_WAITING)

    # Waiting ----------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Wait for the lock, then supervise the child."""
        self._keeper.start()
        began = shown = clock()
        watched = is_terminal() and not self._job.quiet
        while self._keeper.lease is None and not self._keeper.over:
            readable([self._signals], _TICK)
            for number in self._signals.received():
                if number in _ENDS_WAITING:
                    return self._stop_waiting(number)
            if watched and clock() - began >= _SHOW_AFTER and clock() - shown >= _SHOW_AFTER / 2:
                shown = clock()
                self._show_waiting(shown - began)
        clear_status()
        if self._keeper.done is not None and self._job.record is not None:
            assert self._output is not None  # noqa: S101
            return self._job.record.replay(self._keeper.done, self._output)
        if self._keeper.lease is None:
            return self._explain(self._keeper.error)
        if self._job.verbose:
            lease = self._keeper.lease
            say(
                f"{self._words.has} {lease.name!r} with fence {lease.fence} after {clock() - began:.2f} s",
                colour="dim", event="held", name=lease.name, fence=lease.fence, waited=round(clock() - began, 3),
            )  # fmt: skip
        return self._supervise()

    def _stop_waiting(self, number: int) -> int:
        clear_status()
        if not self._keeper.give_up():
            say("the server did not answer in time; the pending request expires by itself", colour="yellow")
        return ended_by(number)

    def _show_waiting(self, seconds: float) -> None:
        self._keeper.listen_for_holder()
        by = f", {self._words.by} {self._keeper.holder}" if self._keeper.holder else ""
        show_status(f"waiting for {self._job.request.name!r}{by} … ({seconds:.0f} s)")

    def _explain(self, error: BaseException | None) -> int:
        """Print why there is no lock."""
        from pawlock.errors import NotAcquired, PawlockError

        if isinstance(error, NotAcquired) and code_of(error) == Exit.CONFLICT:
            if not self._job.quiet:
                name, holder = self._job.request.name, error.holder or self._keeper.holder
                text = f"{name!r} is {self._words.by} {holder} [{error.code}]" if holder else str(error)
                say(text, colour="yellow", event="busy", name=name, holder=holder or "")
            return self._job.conflict
        if not isinstance(error, PawlockError | OSError):
            if error is not None and self._job.verbose:
                traceback.print_exception(error)
            say(f"internal error, please report it (-v prints the traceback): {error!r}", colour="red")
            return Exit.SOFTWARE
        say(str(error) or repr(error), colour="red")
        return code_of(error)

    # Running ----------------------------------------------------------------------------------------------

    def _supervise(self) -> int:
        lease = self._keeper.lease
        assert lease is not None  # noqa: S101
        self._kill_after = check_kill_after(self._job.kill_after, lease.ttl, on_lost=self._job.on_lost)
        if self._keeper.max_hold is not None:
            self._hold_until = clock() + self._keeper.max_hold
        self._check_lease()
        if self._lost_at is not None:
            self._keeper.let_go(0.0)
            self.lost = True
            return Exit.LOST
        if self._output is not None:
            self._output.start()
        self._spawner.start(
            self._environment(),
            kill_after=self._kill_after,
            # Renewed every third of its ttl, the lease has two thirds left at least, should we be killed.
            grace=min(self._kill_after, lease.ttl * _GRACE),
        )
        both: list[SignalPipe | Spawner] = [self._signals, self._spawner]
        while True:
            ready = readable(both, self._patience())
            # Before anything else: we may have been stopped for longer than the lease is good for.
            self._check_lease()
            if self._signals in ready:
                self._forward_signals()
            if self._spawner in ready:
                reports = self._spawner.read()
                if reports is None:
                    return self._spawner_died()
                for report in reports:
                    code = self._note(report)
                    if code is not None:
                        return code

    def _environment(self) -> dict[str, str]:
        lease = self._keeper.lease
        assert lease is not None  # noqa: S101
        return {
            "PAWLOCK_LOCK_NAME": lease.name,
            "PAWLOCK_FENCE": str(lease.fence),
            "PAWLOCK_TTL_MS": str(round(lease.ttl * 1000)),
            **variable_for(self._job.request.kind, lease.name, lease.fence, held_around()),
        }

    def _patience(self) -> float:
        lease = self._keeper.lease
        if lease is None or self._lost_at is not None:
            return _TICK
        # The spawner is to hear of each renewal while the old validity is still good.
        waits = [_TICK, max(0.005, (lease.remaining() - self._kill_after) / 4)]
        if self._hold_until is not None and not self._ending:
            waits.append(max(0.0, self._hold_until - clock()))
        return min(waits)

    def _check_lease(self) -> None:
        """See that the command ends while the lease is ours: at max_hold, and when it is not renewed."""
        lease = self._keeper.lease
        if lease is None or self._is_lost():
            return
        now = clock()
        remaining = lease.remaining()
        if self._hold_until is not None and now >= self._hold_until:
            # It is renewed until the command is gone: the next holder is not to meet it.
            self._end(f"was held for {self._keeper.max_hold:g} s (max_hold): ending the command", "max_hold")
        if self._kills:
            kill = now + remaining - min(_MARGIN, lease.ttl / _MARGIN_SHARE)
            term = kill - self._kill_after
            self._spawner.allow_until(term, kill)
            if now >= term:
                self._end("was not renewed in time (unreachable): ending the command", "unreachable")

    def _is_lost(self) -> bool:
        lease = self._keeper.lease
        if self._lost_at is None and lease is not None and (lease.remaining() <= 0 or lease.lost):
            self._lost_at = clock()
            then = "ending the command" if self._kills else "the command keeps running without it"
            self._end(f"was lost ({self._reason()}): {then}", self._reason(), kills=self._kills)
        return self._lost_at is not None

    def _end(self, why: str, reason: str, *, kills: bool = True) -> None:
        """End the command, once, and say why."""
        if kills:
            self._spawner.end()
        if self._ending:
            return
        self._ending = kills
        lease = self._keeper.lease
        assert lease is not None  # noqa: S101
        text = f"the {self._words.it} {lease.name!r} {why}"
        say(text, colour="red", event="lost", name=lease.name, reason=reason)

    def _reason(self) -> str:
        from pawlock.errors import LeaseLost

        lease = self._keeper.lease
        assert lease is not None  # noqa: S101
        try:
            lease.check()
        except LeaseLost as lost:
            return str(lost.reason)
        return "expired"

    def _forward_signals(self) -> None:
        for number in self._signals.received():
            if number == signal.SIGCONT:
                self._resume()
            else:
                self._forwarded.add(number)
                self._spawner.signal(number)

    def _note(self, report: dict[str, Any]) -> int | None:
        """Act on what the spawner says; the exit code when the child is no more."""
        if "started" in report:
            self._child = report["started"]
            if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:  # from now on it is for the child
                signal.signal(signal.SIGTSTP, signal.getsignal(signal.SIGCONT))
            return None
        if "not_permitted" in report:
            say("the command runs as another user now: pawlock cannot end it", colour="red")
            return None
        if "stopped" in report:
            self._child_stopped(report["stopped"])
            return None
        if "failed" in report:
            self._release()
            say(f"{self._job.command[0]}: {report['why']}", colour="red")
            return Exit.NOT_FOUND if report["failed"] == 2 else Exit.NOT_EXECUTABLE  # ENOENT
        return self._finish(report)

    # The terminal -----------------------------------------------------------------------------------------

    def _child_stopped(self, number: int) -> None:
        """The child's group was stopped: by the terminal, which concerns us, or by somebody's SIGSTOP."""
        if self._terminal is None or number == signal.SIGSTOP:
            return  # keep the lock: the child was stopped for a reason, and may be resumed
        if number in (signal.SIGTTIN, signal.SIGTTOU) and self._terminal.is_ours:
            self._terminal.give(self._child)
            self._spawner.signal(signal.SIGCONT)
            return
        self._terminal.take_back(self._child)
        lease = self._keeper.lease
        if not self._job.quiet and lease is not None:
            say(f"stopped; the lock expires if this lasts longer than {max(0.0, lease.remaining()):.0f} s")
        # The shell shows a job as stopped when all of its group is; a group that nobody could wake is left
        # alone.
        action = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, action)
        self._check_lease()
        self._resume()

    def _resume(self) -> None:
        if self._lost_at is not None or not self._child:
            return
        if self._terminal is not None and self._terminal.is_for_child:
            self._terminal.give(self._child)
        self._spawner.signal(signal.SIGCONT)

    # The end ----------------------------------------------------------------------------------------------

    def _finish(self, report: dict[str, Any]) -> int:
        """The child has ended."""
        number = int(report.get("signal", 0))
        code: int = ended_by(number) if number else report["code"]
        late = self._is_lost()
        if report.get("late") and not late:
            late = True
            self._end("was not renewed in time: the command was ended", "unreachable", kills=False)
        if self._output is not None and self._job.record is not None:
            self._output.drain()
            if not (late or self._ending or self.end_requested):
                self._keeper.result = self._job.record.made(report, self._output)
            elif self.end_requested and not code and not self._job.quiet:
                say("the command was asked to end by a signal: nothing is recorded", colour="yellow")
        released = self._release()
        had_terminal = self._terminal is not None and self._terminal.take_back(self._child)
        if self._ending or ((late or not released) and self._kills):
            self.lost = True
            return Exit.LOST
        if had_terminal and number in (signal.SIGINT, signal.SIGQUIT) and number not in self._forwarded:
            # The Ctrl-C went to the child's group alone; a script around us expects it as well.
            signal.signal(number, signal.SIG_IGN)
            os.killpg(0, number)
        return code

    def _release(self) -> bool:
        """Let the lock go; False when it turns out not to have been ours any more."""
        from pawlock.errors import LeaseLost, NotHeld

        if self._lost_at is not None:
            self._keeper.let_go(0.0)
            return False
        lease = self._keeper.lease
        patience = None if lease is None or not (self._ending or self._keeper.result) else lease.remaining()
        answered = self._keeper.let_go(patience)
        error = self._keeper.error
        if not answered or error is not None:
            lost = isinstance(error, NotHeld | LeaseLost)
            why = "the server did not answer" if error is None else str(error)
            name = self._job.request.name
            if lost:
                say(f"the {self._words.it} {name!r} was lost before the command ended: {why}", colour="red")
                return False
            if self._keeper.result is not None:
                say(f"the result of {name!r} may not have been recorded: {why}", colour="red")
            elif not self._job.quiet and not self._ending:
                text = f"the {self._words.it} {name!r} was not released and will expire within its TTL: {why}"
                say(text, colour="yellow")
        return True

    def _spawner_died(self) -> int:
        """The spawner was killed, and the kernel killed the child with it: kill the rest of its process group."""
        if self._child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
            if self._terminal is not None:
                self._terminal.take_back(self._child)
        self._release()
        say("the supervisor of the command was killed, and the command with it", colour="red")
        return by_signal(signal.SIGKILL)
