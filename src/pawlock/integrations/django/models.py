# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""The model behind the page of the admin: it has no table, only the permissions to see and to release locks."""

from __future__ import annotations

from django.db import models

__all__ = ["Lock"]


class Lock(models.Model):  # type: ignore[misc] # Django has no type marks
    """A lock, as the admin names it. It has no table and no rows."""

    name: models.CharField = models.CharField(max_length=200, primary_key=True)

    class Meta:
        """No table; who may see locks and who may force-release them."""

        managed: bool = False
        default_permissions: tuple[str, ...] = ("view", "change")
        verbose_name: str = "lock"
        verbose_name_plural: str = "locks"

    def __str__(self) -> str:
        return str(self.name)
