# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""``manage.py pawlock``: the command ``pawlock`` with the server and the namespace of the settings."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pawlock.integrations.django._settings import made_from

__all__ = ["Command"]


class Command(BaseCommand):  # type: ignore[misc] # Django has no type marks
    """Run a verb of the command ``pawlock``: ``manage.py pawlock ls``."""

    help: str = (
        "Run the command pawlock with this project's server and namespace: ls, show NAME, doctor, top, …"
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take everything that follows as it is."""
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="VERB [ARGUMENT …]")

    def handle(self, *_args: object, arguments: list[str], **_options: Any) -> None:
        """Run it as a process of its own; end with its exit code."""
        target, options, _ = made_from()
        environ = dict(os.environ)
        if target is not None:
            if not isinstance(target, str):
                raise CommandError(
                    "manage.py pawlock needs a URL in PAWLOCK['URL'], as redlock://a,b,c for several"
                )
            environ["PAWLOCK_URL"] = target  # not as an argument: it may hold a password
        if "namespace" in options:
            environ["PAWLOCK_NAMESPACE"] = str(options["namespace"])
        command = [sys.executable, "-m", "pawlock", *(arguments or ["--help"])]
        done = subprocess.run(command, env=environ, check=False)  # noqa: S603 - the project's own command
        if done.returncode:
            sys.exit(done.returncode)
