"""The main loop of `pawl run`: waits for the lock, then minds the child until one of them ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pawl.cli._bell import FORWARDED, Bell, clock
from pawl.cli._keeper import Keeper, Wish
from pawl.cli._spawner import Plan, Spawner
from pawl.cli._terminal import Terminal
from pawl.cli.exits import Exit, by_signal, clear_status, is_terminal, say, show_status

__all__ = ["Ended", "Job", "mind", "run_job"]

_TICK = 1.0
_SHOW_AFTER = 1.0
_GRACE = 0.5
_ENDS_WAITING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What `pawl run` was asked to do.

    Attributes:
        wish: The lock.
        command: The child's program and arguments.
        conflict: Exit code when the lock is held by another.
        kill_after: Seconds between TERM and KILL when the lease is lost.
        on_lost: "kill" or "warn".
        quiet: Say nothing but errors.
        verbose: Say what happens.
    """

    wish: Wish
    command: Sequence[str]
    conflict: int = Exit.CONFLICT
    kill_after: float = 5.0
    on_lost: str = "kill"
    quiet: bool = False
    verbose: bool = False


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


def run_job(job: Job) -> int:
    """Take the lock, run the command, release the lock.

    Args:
        job: What to do.

    Returns:
        The exit code for the shell.
    """
    return mind(job).code


def mind(job: Job) -> Ended:
    """Take the lock, run the command, release the lock. To be called once in a process.

    Args:
        job: What to do.
    """
    names = (*FORWARDED, signal.SIGCHLD, signal.SIGCONT, signal.SIGTTIN, signal.SIGTTOU)
    dispositions = {number: signal.getsignal(number) for number in names}
    # The interpreter ignores these for itself; a child expects the system's default.
    dispositions |= dict.fromkeys((signal.SIGPIPE, signal.SIGXFSZ), signal.SIG_DFL)
    terminal = Terminal.find()
    plan = Plan(
        command=job.command,
        kill_after=job.kill_after,
        dispositions=dispositions,
        mask={int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, set())},
        terminal=terminal,
    )
    spawner = Spawner(plan)
    try:
        # What was ignored from the start (nohup, a job of a script in the background) stays so, for us and
        # the child.
        heard = [n for n in FORWARDED if dispositions[n] is not signal.SIG_IGN and n is not signal.SIGTSTP]
        bell = Bell([*heard, signal.SIGCONT])
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        wrapper = _Wrapper(job, spawner, bell, terminal)
        code = wrapper.run()
        return Ended(code, code == Exit.LOST and wrapper.lost and not wrapper.told_to_end, wrapper.held)
    finally:
        spawner.close()


class _Words(NamedTuple):
    it: str
    has: str
    by: str


_HOLDING = _Words("lock", "holding", "held by")
_LEADING = _Words("lead of", "leading", "led by")


class _Wrapper:
    def __init__(self, job: Job, spawner: Spawner, bell: Bell, terminal: Terminal | None) -> None:
        self._job = job
        self._spawner = spawner
        self._bell = bell
        self._terminal = terminal
        self._keeper = Keeper(job.wish, bell.ring)
        self._child = 0
        self._stopped = False
        self._lost_at: float | None = None
        self._forwarded: set[int] = set()
        self._words = _LEADING if job.wish.election else _HOLDING
        self.lost = False

    @property
    def held(self) -> bool:
        """Whether the lock was ever held."""
        return self._keeper.lease is not None

    @property
    def told_to_end(self) -> bool:
        """Whether a signal came that asks to end."""
        return not self._forwarded.isdisjoint(_ENDS_WAITING)

    # Waiting ----------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Wait for the lock, then mind the child."""
        self._keeper.start()
        began = shown = clock()
        watched = is_terminal() and not self._job.quiet
        while self._keeper.lease is None and not self._keeper.over:
            select.select([self._bell], [], [], _TICK)
            for number in self._bell.heard():
                if number in _ENDS_WAITING:
                    return self._stop_waiting(number)
            if watched and clock() - began >= _SHOW_AFTER and clock() - shown >= _SHOW_AFTER / 2:
                shown = clock()
                self._show_waiting(shown - began)
        clear_status()
        if self._keeper.lease is None:
            return self._explain(self._keeper.error)
        if self._job.verbose:
            lease = self._keeper.lease
            say(
                f"{self._words.has} {lease.name!r} with fence {lease.fence} after {clock() - began:.2f} s",
                colour="dim", event="held", name=lease.name, fence=lease.fence, waited=round(clock() - began, 3),
            )  # fmt: skip
        return self._mind()

    def _stop_waiting(self, number: int) -> int:
        clear_status()
        if not self._keeper.give_up():
            say("the server did not answer in time; what was asked of it lapses by itself", colour="yellow")
        return by_signal(number)

    def _show_waiting(self, seconds: float) -> None:
        self._keeper.listen_for_holder()
        by = f", {self._words.by} {self._keeper.holder}" if self._keeper.holder else ""
        show_status(f"waiting for {self._job.wish.name!r}{by} … ({seconds:.0f} s)")

    def _explain(self, error: BaseException | None) -> int:
        """Tell why there is no lock."""
        from pawl.errors import ConfigurationError, NotAcquired, PawlError

        if isinstance(error, NotAcquired):
            if not self._job.quiet:
                name, holder = self._job.wish.name, error.holder or self._keeper.holder
                text = f"{name!r} is {self._words.by} {holder}" if holder else str(error)
                say(text, colour="yellow", event="busy", name=name, holder=holder or "")
            return self._job.conflict
        if not isinstance(error, PawlError | OSError):
            if error is not None and self._job.verbose:
                traceback.print_exception(error)
            say(f"this is a defect of pawl (-v tells more): {error!r}", colour="red")
            return Exit.SOFTWARE
        say(str(error) or repr(error), colour="red")
        return Exit.USAGE if isinstance(error, ConfigurationError) else Exit.UNAVAILABLE

    # Running ----------------------------------------------------------------------------------------------

    def _mind(self) -> int:
        lease = self._keeper.lease
        assert lease is not None  # noqa: S101
        self._check_lease()
        if self._lost_at is not None:
            self._keeper.let_go(0.0)
            self.lost = True
            return Exit.LOST
        # Renewed every third of its ttl, the lease has two thirds left at least, should we be killed.
        self._spawner.start(self._environment(), grace=min(self._job.kill_after, lease.ttl * _GRACE))
        both: list[Bell | Spawner] = [self._bell, self._spawner]
        while True:
            ready, _, _ = select.select(both, [], [], self._patience())
            # Before anything else: we may have been stopped for longer than the lease is good for.
            self._check_lease()
            if self._bell in ready:
                self._hear()
            if self._spawner in ready:
                reports = self._spawner.read()
                if reports is None:
                    return self._bereaved()
                for report in reports:
                    code = self._note(report)
                    if code is not None:
                        return code

    def _environment(self) -> dict[str, str]:
        lease = self._keeper.lease
        assert lease is not None  # noqa: S101
        return {
            "PAWL_LOCK_NAME": lease.name,
            "PAWL_FENCE": str(lease.fence),
            "PAWL_TTL_MS": str(round(lease.ttl * 1000)),
        }

    def _patience(self) -> float:
        lease = self._keeper.lease
        # The spawner is to hear of each renewal while the old validity is still good.
        return _TICK if lease is None or self._lost_at else min(_TICK, max(0.005, lease.remaining() / 4))

    def _check_lease(self) -> None:
        lease = self._keeper.lease
        if lease is None or self._lost_at is not None:
            return
        now = clock()
        remaining = lease.remaining()
        if remaining > 0 and not lease.lost:
            if self._job.on_lost == "kill":
                self._spawner.valid_until(now + remaining)
            return
        self._lost_at = now
        kills = self._job.on_lost == "kill"
        if kills:
            self._spawner.end()
        then = "ending the command" if kills else "the command goes on without it"
        text = f"the {self._words.it} {lease.name!r} was lost ({self._reason()}): {then}"
        say(text, colour="red", event="lost", name=lease.name, reason=self._reason())

    def _reason(self) -> str:
        from pawl.errors import LeaseLost

        lease = self._keeper.lease
        assert lease is not None  # noqa: S101
        try:
            lease.check()
        except LeaseLost as lost:
            return str(lost.reason)
        return "expired"

    def _hear(self) -> None:
        for number in self._bell.heard():
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
        if "powerless" in report:
            say("the command has become another user: it cannot be ended", colour="red")
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
            return  # keep the lock: whoever stopped the child has a reason, and may let it go on
        if number in (signal.SIGTTIN, signal.SIGTTOU) and self._terminal.is_ours:
            self._terminal.give(self._child)
            self._spawner.signal(signal.SIGCONT)
            return
        self._terminal.take_back(self._child)
        lease = self._keeper.lease
        if not self._job.quiet and lease is not None:
            say(f"stopped; the lock is lost if this lasts longer than {max(0.0, lease.remaining()):.0f} s")
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
        code: int = by_signal(number) if number else report["code"]
        self._check_lease()
        late = bool(report.get("late")) or self._lost_at is not None
        released = self._release()
        had_terminal = self._terminal is not None and self._terminal.take_back(self._child)
        if (late or not released) and self._job.on_lost == "kill":
            self.lost = True
            return Exit.LOST
        if had_terminal and number in (signal.SIGINT, signal.SIGQUIT) and number not in self._forwarded:
            # The Ctrl-C went to the child's group alone; a script around us expects it as well.
            signal.signal(number, signal.SIG_IGN)
            os.killpg(0, number)
        return code

    def _release(self) -> bool:
        """Let the lock go; False when it turns out not to have been ours any more."""
        from pawl.errors import LeaseLost, NotHeld

        if self._lost_at is not None:
            self._keeper.let_go(0.0)
            return False
        answered = self._keeper.let_go()
        error = self._keeper.error
        if not answered or error is not None:
            lost = isinstance(error, NotHeld | LeaseLost)
            why = "the server did not answer" if error is None else str(error)
            if lost:
                say(f"the {self._words.it} was lost before the command ended: {why}", colour="red")
                return False
            if not self._job.quiet:
                say(
                    f"the {self._words.it} was not released, it frees itself within its ttl: {why}",
                    colour="yellow",
                )
        return True

    def _bereaved(self) -> int:
        """Somebody killed the spawner: the kernel killed the child with it, and we make sure of its group."""
        if self._child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
            if self._terminal is not None:
                self._terminal.take_back(self._child)
        self._release()
        say("the process that minds the command was killed, and the command with it", colour="red")
        return by_signal(signal.SIGKILL)
