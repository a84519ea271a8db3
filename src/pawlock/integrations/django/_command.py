# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""Management commands of which one runs at a time, on all machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import pawlock
from pawlock.integrations._names import filled
from pawlock.integrations.django._settings import client

__all__ = ["OneAtATime"]

_TEMPFAIL = 75
"""The exit code of a command that is worth a later try, as of ``pawlock run``."""

if TYPE_CHECKING:

    class _Base:
        stdout: Any
        style: Any

        def execute(self, *args: Any, **options: Any) -> Any: ...

else:
    _Base = object


class OneAtATime(_Base):
    """A mixin for management commands: while one runs on any machine, the same command elsewhere skips, fails or waits.

    ``class Command(OneAtATime, BaseCommand): lock = "import:{source}"``

    Attributes:
        lock: The name of the lock. Fields are filled from the command's arguments; default the module of the command.
        on_contended: What the command does while another one runs: ``"skip"`` (default) says so and ends with 0,
            ``"raise"`` ends with 75 and an error, ``"wait"`` waits, as long as ``timeout`` in ``lock_options`` says.
        lock_options: Options of ``client.lock``, as ``min_hold``: seconds that the name stays closed at least, for
            machines whose clocks differ; or ``max_hold``.
        lease: The lease while the command runs: its ``fence`` and ``check()``. A lease that is lost does not interrupt
            the command; it then ends with ``LeaseLost``.
    """

    lock: str = ""
    on_contended: Literal["skip", "raise", "wait"] = "skip"
    lock_options: Mapping[str, Any] = {}
    lease: pawlock.Lease

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command under its lock; called by Django."""
        from django.core.management.base import CommandError

        if self.on_contended not in ("skip", "raise", "wait"):
            raise pawlock.ConfigurationError(
                f"on_contended must be 'skip', 'raise' or 'wait', got {self.on_contended!r:.40}"
            )
        name = filled(self.lock or type(self).__module__, options, "arguments of the command")
        lock = client().lock(name, **self.lock_options)
        try:
            lease = lock.acquire() if self.on_contended == "wait" else lock.try_acquire()
        except pawlock.AcquireTimeout as error:
            raise CommandError(str(error), returncode=_TEMPFAIL) from error
        if lease is None:
            text = f"{lock.name!r} is held by another client"
            if self.on_contended == "raise":
                raise CommandError(text, returncode=_TEMPFAIL)
            (options.get("stdout") or self.stdout).write(f"skipped: {text}\n")
            return None
        with lease:
            self.lease = lease
            return super().execute(*args, **options)
