"""The same reply to a ticket in a sync and in an async view."""

import asyncio
import os
import time

from django.http import HttpRequest, JsonResponse

import pawlock
from tests.nightly.apps.desk.locks import async_locks, locks
from tests.nightly.apps.desk.models import Ticket


def busy(error: pawlock.AcquireTimeout) -> JsonResponse:
    return JsonResponse({"code": error.code}, status=423, headers={"Retry-After": "1"})


def reply(request: HttpRequest, number: int) -> JsonResponse:
    """Read, think, write: without the lock two agents would count the same reply."""
    try:
        with locks.lock(f"ticket:{number}").acquire(timeout=float(request.GET.get("timeout", 30))) as lease:
            replies = Ticket.objects.get(number=number).replies
            time.sleep(float(request.GET.get("slow", 0.01)))
            done = Ticket.objects.filter(number=number, token__lte=lease.fence)
            written = done.update(replies=replies + 1, token=lease.fence)
            return JsonResponse({"written": written, "token": lease.fence, "process": os.getpid()})
    except pawlock.AcquireTimeout as error:
        return busy(error)


async def async_reply(request: HttpRequest, number: int) -> JsonResponse:
    try:
        timeout = float(request.GET.get("timeout", 30))
        async with async_locks.lock(f"ticket:{number}").acquire(timeout=timeout) as lease:
            ticket = await Ticket.objects.aget(number=number)
            await asyncio.sleep(float(request.GET.get("slow", 0.01)))
            done = Ticket.objects.filter(number=number, token__lte=lease.fence)
            written = await done.aupdate(replies=ticket.replies + 1, token=lease.fence)
            return JsonResponse({"written": written, "token": lease.fence, "process": os.getpid()})
    except pawlock.AcquireTimeout as error:
        return busy(error)
