# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""What Django loads for ``"pawl.integrations.django"`` in ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks

from pawl.integrations.django._checks import check_locks

__all__ = ["PawlConfig"]


class PawlConfig(AppConfig):  # type: ignore[misc] # Django has no type marks
    """The application ``pawl``: its checks, its command and its page of the admin."""

    name: str = "pawl.integrations.django"
    label: str = "pawl"
    verbose_name: str = "pawl"

    def ready(self) -> None:
        """Register the checks."""
        checks.register(check_locks, "pawl")
