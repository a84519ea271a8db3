"""A command that waits for a lock which its own `pawlock run` holds would never end: it is refused at once.

Each `pawlock run` puts what it holds into the environment of its command, with the fence. A fence is given out once,
so that a name whose fence is among these is still held by an enclosing command, whatever its server and namespace.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pawlock

__all__ = ["VARIABLE", "held_around", "refuse_nested", "state_of_once", "variable_for"]

VARIABLE = "PAWLOCK_HELD"
"""What the enclosing commands hold: a JSON array of kind, name and fence for each, the outermost first."""

Held = tuple[str, str, int]

_VERBS = {"lock": "run", "election": "run", "once": "once"}


def held_around(environ: Mapping[str, str] = os.environ) -> list[Held]:
    """What the enclosing commands hold; a variable that pawlock did not write counts as nothing."""
    found: list[Held] = []
    try:
        entries: Any = json.loads(environ.get(VARIABLE, "[]"))
        found += [(str(kind), str(name), int(fence)) for kind, name, fence in entries]
    except (ValueError, TypeError):
        found.clear()
    return found


def variable_for(kind: str, name: str, fence: int, around: Iterable[Held]) -> dict[str, str]:
    """The variable for a command that is started with this held, too."""
    return {VARIABLE: json.dumps([*around, (kind, name, fence)])}


def state_of_once(client: pawlock.Client, name: str) -> pawlock.LockInfo:
    """Who runs what is done once. The name is taken as it stands."""
    from pawlock._inside import engine_of, plan_behind
    from pawlock._template import escape
    from pawlock.core.observe.inspect import inspect
    from pawlock.runtimes.threads import run

    plan = plan_behind(client.once(escape(name)))
    return run(inspect(engine_of(client), plan.primitive, plan.options, 0))


def refuse_nested(client: pawlock.Client, kind: str, name: str) -> None:
    """Refuse to wait for what an enclosing command holds.

    Raises:
        ConfigurationError: It would wait for itself.
    """
    fences = {fence for held, one, fence in held_around() if (held, one) == (kind, name)}
    if not fences:
        return
    from pawlock._template import escape
    from pawlock.cli._common import given_name
    from pawlock.errors import ConfigurationError, NotSupported

    try:
        if kind == "election":
            leader = client.election(escape(name)).leader()
            now = leader.fence if leader else None
        else:
            info = (
                state_of_once(client, name) if kind == "once" else client.inspect(given_name(name), waiters=0)
            )
            now = info.fence if info.held else None
    except NotSupported:  # such a server cannot say who holds a name
        return
    if now in fences:
        raise ConfigurationError(
            f"{name!r} is held by the `pawlock {_VERBS[kind]}` around this command (fence {now}), which would wait for "
            f"itself: use another name, or {'leave out --wait' if kind == 'once' else '-n'}"
        )
