# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""What Django loads for ``"pawlock.integrations.django"`` in ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks

from pawlock.integrations.django._checks import check_locks

__all__ = ["PawlockConfig"]


class PawlockConfig(AppConfig):  # type: ignore[misc] # Django has no type marks
    """The application ``pawlock``: its checks, its command and its page of the admin."""

    name: str = "pawlock.integrations.django"
    label: str = "pawlock"
    verbose_name: str = "pawlock"

    def ready(self) -> None:
        """Register the checks."""
        checks.register(check_locks, "pawlock")
