# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""Rows that refuse writes of an earlier holder: ``FencedModel`` and its manager."""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

from django.db import models, transaction

import pawlock
from pawlock.fencing import Fenced, fence_of

__all__ = ["FencedManager", "FencedModel", "FencedQuerySet"]


class FencedQuerySet(models.QuerySet):  # type: ignore[misc] # Django has no type marks
    """Rows that are claimed, or written, under the fencing token of a lease: all that fit, or none."""

    def claim(self, lease: Fenced | int) -> int:
        """Write the fencing token of a lease to the rows, and nothing else: earlier holders cannot write them any more.

        Call it before you read what your write depends on.

        Args:
            lease: The lease, or its fencing token.

        Returns:
            How many rows were claimed.

        Raises:
            StaleFence: A later holder claimed or wrote one of the rows, or the lease is degraded. Nothing was written.
            ConfigurationError: The model has its rows in several tables.
        """
        return self.write(lease)

    def write(self, lease: Fenced | int, **values: Any) -> int:
        """``update()`` under the fencing token of a lease.

        Args:
            lease: The lease under which this is written, or its fencing token.
            values: What is written, as for ``update``: values, or expressions such as ``F("left") - 1``.

        Returns:
            How many rows were written.

        Raises:
            StaleFence: A later holder claimed or wrote one of the rows, or the lease is degraded. Nothing was written.
            ConfigurationError: The model has its rows in several tables, or ``fence`` is among the values.
        """
        fence, model = fence_of(lease), cast("Any", self.model)
        if "fence" in values:
            raise pawlock.ConfigurationError(f"{model.__name__}: write sets the fencing token itself")
        if model._meta.concrete_model._meta.parents:
            # Django writes each table with a statement of its own, and reads before which rows it is to be.
            raise pawlock.ConfigurationError(
                f"{model.__name__} has its rows in several tables, and its fencing token in one of them: "
                "derive it from an abstract model instead"
            )
        atomic: Any = transaction.atomic
        with atomic(using=self.db):
            # Written first: from then on nobody else changes these rows, and no others come to have a later token
            # unseen, since they are read with their locks, in MySQL the only way to see what was committed meanwhile.
            written = int(self.filter(fence__lte=fence).update(fence=fence, **values))
            later = self.filter(fence__gt=fence).order_by().select_for_update(of=self._of())
            seen = max((row.fence for row in later.only("fence")), default=0)
            if seen:
                what = f"a row of {model.__name__}"
                text = f"{what} was already written with fencing token {seen}, and {fence} is stale"
                name = None if isinstance(lease, int) else lease.name
                raise pawlock.StaleFence(text, name=name, fence=fence)
        return written

    def _of(self) -> tuple[str, ...]:
        # Without it, rows of other tables that the conditions name are locked too. MariaDB does not know it.
        return ("self",) if transaction.get_connection(self.db).features.has_select_for_update_of else ()


FencedManager: Any = models.Manager.from_queryset(FencedQuerySet, "FencedManager")
"""The manager of a ``FencedModel``: ``claim`` and ``write`` for rows, beside what every manager has."""


class FencedModel(models.Model):  # type: ignore[misc] # Django has no type marks
    """A model whose rows remember the fencing token under which they were last claimed or written.

    It adds the column ``fence``, and the manager ``objects`` with ``claim`` and ``write``. What ``save()``,
    ``update()`` and ``delete()`` write is not guarded. A manager of your own derives from ``FencedManager``.
    """

    fence: models.BigIntegerField = models.BigIntegerField(default=cast("Any", 0), editable=False)

    objects: ClassVar[Any] = FencedManager()

    class Meta:
        """No table of its own."""

        abstract: bool = True

    def claim(self, lease: Fenced | int) -> Self:
        """Claim this row, and read it anew: what it has then, no earlier holder changes.

        Args:
            lease: The lease, or its fencing token.

        Returns:
            This object.

        Raises:
            StaleFence: A later holder claimed or wrote the row, or the lease is degraded.
            DoesNotExist: The row was deleted.
        """
        if not self._row().claim(lease):
            raise self._gone()
        self.refresh_from_db()
        return self

    def write(self, lease: Fenced | int, **values: Any) -> Self:
        """Write fields of this row under the fencing token of a lease; the object has them afterwards.

        Args:
            lease: The lease under which this is written, or its fencing token.
            values: What is written: values, or expressions such as ``F("left") - 1``.

        Returns:
            This object.

        Raises:
            StaleFence: A later holder claimed or wrote the row, or the lease is degraded. Nothing was written.
            DoesNotExist: The row was deleted.
        """
        if not self._row().write(lease, **values):
            raise self._gone()
        self.refresh_from_db(fields=["fence", *values])
        return self

    def _row(self) -> FencedQuerySet:
        found: FencedQuerySet = FencedQuerySet(type(self), using=self._state.db).filter(pk=self.pk)
        return found

    def _gone(self) -> Exception:
        kind = cast("Any", type(self))
        found: Exception = kind.DoesNotExist(f"{kind.__name__} {self.pk!r} has no row")
        return found
