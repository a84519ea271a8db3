# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""The page of the admin: who holds which lock, and a button to force-release it with a reason."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path

import pawlock
from pawlock.integrations.django._settings import client
from pawlock.integrations.django.models import Lock

__all__ = ["LockAdmin"]

_LAST = 20


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[misc] # Django has no type marks
    """The locks of the client's namespace. To see them takes the permission "view", to force-release one "change"."""

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002 - Django's signature
        """Nobody adds a lock here."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002 - as above
        """A lock is released, not deleted."""
        return False

    def get_urls(self) -> list[Any]:
        """The one page; there is no table for the others."""
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="pawlock_lock_changelist")]

    def changelist_view(self, request: Any, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the locks and the last force-releases; a POST force-releases one."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._force_release(request)
        context = {
            **self.admin_site.each_context(request),
            "title": "Locks",
            "opts": self.model._meta,
            "may_release": self.has_change_permission(request),
            **(extra_context or {}),
        }
        try:
            locks = [found for found in client().locks() if found.held]
            context |= {"locks": locks, "audit": client().audit(_LAST)}
        except pawlock.PawlockError as error:
            context["error"] = str(error)
        return TemplateResponse(request, "pawlock/locks.html", context)

    def _force_release(self, request: Any) -> Any:
        if not self.has_change_permission(request):
            raise PermissionDenied
        name, reason = str(request.POST.get("name", "")), str(request.POST.get("reason", "")).strip()
        if not reason:
            messages.error(request, "Give a reason: it is recorded in the audit log.")
            return redirect(request.path)
        try:
            # Names are shown as they are on the server, where a brace is a brace.
            given = name.replace("{", "{{").replace("}", "}}")
            done = client().force_release(
                given, reason=f"{reason[:400]} (by {request.user.get_username()[:80]})"
            )
        except pawlock.PawlockError as error:
            messages.error(request, str(error))
            return redirect(request.path)
        if done:
            LogEntry.objects.create(
                user_id=request.user.pk,
                content_type_id=ContentType.objects.get_for_model(Lock).pk,
                object_id=name,
                object_repr=name,
                action_flag=CHANGE,
                change_message=f"Force-released from {done.holder}: {reason}",
            )
            messages.success(request, f"{name} was released. Its holder was {done.holder or 'not known'}.")
        elif done.holder:
            text = f"{name} was not taken: it changed hands each time, and is now held by {done.holder}."
            messages.warning(request, text)
        else:
            kind = f" as a lock; it is held as {done.held_as}" if done.held_as else ""
            messages.warning(request, f"Nobody held {name}{kind}.")
        return redirect(request.path)
