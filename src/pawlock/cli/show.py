"""`pawlock show`: one name, its queue, who had it before, and what operators did to it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from pawlock._inside import engine_of, plan_behind, settings_of
from pawlock.cli._common import (
    SETTINGS,
    age_of,
    client_of,
    duration,
    given_name,
    json_option,
    moment,
    name_argument,
    print_json,
    readable,
    record,
    server_options,
    write,
)
from pawlock.cli.exits import Exit

if TYPE_CHECKING:
    from pawlock import AuditEntry, Client, LockInfo
    from pawlock.primitives.once.operation import Recorded

__all__ = ["find", "show"]

_EXAMPLES = """\b
Examples:
  pawlock show order:42
  pawlock show --waiters 0 order:42     without the queue
  pawlock show --json order:42 | jq '.locks[0].holder'

\b
Exit codes:
  0   success, even if the lock is free   69  the server is unreachable or refused
  64  wrong usage

A lock, a semaphore, a read-write lock, an election and a `once` with the same name are separate: each one in use is
shown, or the lock if none is in use. Of what was done once, the value is not shown.
"""


def find(client: Client, name: str, waiters: int) -> list[LockInfo]:
    """What is in use under a name; the record of the lock if nothing is. The name is not a template."""
    from pawlock._factory import plan_of
    from pawlock._seen import states
    from pawlock.runtimes.threads import run

    plan = plan_of(settings_of(client), "lock", given_name(name), {})
    return run(states(engine_of(client), plan, waiters))


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@name_argument
@click.option(
    "--waiters",
    type=click.IntRange(0, 100_000),
    default=100,
    metavar="N",
    help="Maximum number of waiters to list (default: 100).",
)
@json_option("Print a JSON object.")
@server_options
def show(**given: Any) -> int:
    """Show one name: holder, fencing token, queue and audit log; of a `once`, whether it is done."""
    with client_of(given) as client:
        infos = find(client, given["name"], given["waiters"])
        entries = _audited(client, given["name"])
        done = _done(client, given["name"])
    if given["as_json"]:
        fields = {
            "name": given["name"],
            "locks": [record(info) for info in infos],
            "done": None if done is None else done._asdict(),
            "audit": [dataclasses.asdict(entry) for entry in entries],
        }
        print_json(fields, indent=2)
        return Exit.OK
    for info in infos:
        if done is None or info.held or info.queue_length:
            _describe(info)
    if done is not None:
        _describe_done(given["name"], done)
    if entries:
        write("operators")
    for entry in entries:
        write(
            f"  {moment(entry.at)}  {entry.action} ({entry.outcome}) by {readable(entry.who)}: {readable(entry.text)}"
        )
    return Exit.OK


def _audited(client: Client, name: str) -> list[AuditEntry]:
    from pawlock import NotSupported

    try:
        return [entry for entry in client.audit(1000) if entry.name == name]
    except NotSupported:
        # Independent masters keep no audit log, and have no force release.
        return []


def _done(client: Client, name: str) -> Recorded | None:
    """What is recorded of a `once` with this name; None if it is not done, or where the server has no `once`."""
    from pawlock import BackendDenied, NotSupported
    from pawlock.primitives.once.operation import look
    from pawlock.runtimes.threads import run

    try:
        return run(look(engine_of(client), plan_behind(client.once(given_name(name)))))
    except (NotSupported, BackendDenied):
        # What this user must not read is none of its business.
        return None


def _describe_done(name: str, done: Recorded) -> None:
    write(f"{readable(name)} (once)")
    write(f"  {'done':<9} {moment(done.at)}")
    write(f"  {'fence':<9} {done.fence}")
    write(f"  {'kept for':<9} {duration(done.keep_left)}")
    write(f"  {'value':<9} {done.type}, {done.size:,} bytes")


def _describe(info: LockInfo) -> None:
    write(f"{readable(info.name)} ({info.kind})")
    write(f"  {'held by':<9} {_holder(info)}")
    if info.held:
        write(f"  {'ttl left':<9} {duration(info.ttl_left)}")
        if info.since is not None:
            write(f"  {'since':<9} {moment(info.since)}, for {duration(age_of(info))}")
    if info.limit is not None:
        write(f"  {'permits':<9} {info.used} of {info.limit} in use")
    write(f"  {'fence':<9} {'none yet' if info.fence is None else info.fence}")
    for one in info.holders:
        # A holder of a semaphore has no mode: how many permits it has is for its client to know.
        mode = "holder" if info.kind == "semaphore" else one.mode
        write(f"  {mode:<9} {readable(one.holder)}, {duration(one.ttl_left)} left")
    waiting = f"{info.waiting}" + (f", for up to {duration(info.longest_wait)}" if info.longest_wait else "")
    write(f"  {'waiters':<9} {waiting}")
    for waiter in info.waiters:
        write(f"    {waiter.position + 1:>3}  {readable(waiter.holder)}  for {duration(waiter.age)}")
    if len(info.waiters) < info.queue_length:
        write(f"         and {info.queue_length - len(info.waiters)} more")
    if info.waiting > info.queue_length:
        write(f"         and {info.waiting - info.queue_length} inside these clients")


def _holder(info: LockInfo) -> str:
    if not info.held:
        return "nobody"
    if len(info.holders) > 1:
        return f"{len(info.holders)} holders"
    if info.foreign:
        return "a program that is not pawlock"
    found = info.holder or (info.holders[0].holder if info.holders else "?")
    return f"{readable(found)}{' × ' + str(info.count) if info.count > 1 else ''}"
