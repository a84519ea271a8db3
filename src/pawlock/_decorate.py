"""``@client.lock("inventory:{product_id}")``: a function that runs under a lock named by its own arguments.

Works on whatever has ``acquire(timeout=)`` and ``try_acquire()`` and knows what it was made from: each primitive of
the sync and the async API.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from pawlock._inside import client_of, plan_behind, source_of
from pawlock._template import Template, escape, make, plain
from pawlock._unset import Unset
from pawlock.core.base_lease import BaseLease
from pawlock.core.options import check_choice
from pawlock.errors import ConfigurationError, NotHeld
from pawlock.model import Done, Running
from pawlock.primitives.once.operation import running

__all__ = [
    "Guarding",
    "OnContended",
    "Skipping",
    "check_function",
    "current_lease",
    "decorated",
    "decorated_async",
    "decorated_once",
    "decorated_once_async",
]

log: logging.Logger = logging.getLogger("pawlock.acquire")

P = ParamSpec("P")
R = TypeVar("R")

OnContended = Literal["wait", "raise", "skip"]
"""What a call of a decorated function does while another client holds the lock."""

_current: ContextVar[Any] = ContextVar("pawlock_current_lease")


class Guarding(Protocol):
    """What decorates a function, and leaves its type as it is."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate it."""
        ...


class Skipping(Protocol):
    """What decorates a function whose calls may give None instead."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]: ...


def current_lease() -> BaseLease:
    """The lease under which the decorated function that asks runs; of several around each other, the innermost.

    Returns:
        The lease: its ``fence`` for what is written, its ``check()`` before a step that must not run unprotected.

    Raises:
        NotHeld: No decorated function is running here.
    """
    lease = _current.get(None)
    if lease is None:
        text = "current_lease: no function with a pawlock decorator is running in this thread or task"
        raise NotHeld(text, operation="look up")
    return cast("BaseLease", lease)


def decorated(lock: Any, function: Callable[..., Any] | Unset, on_contended: str | Unset) -> Any:
    """The function, run under the lock by threads; without one, what decorates it.

    Args:
        lock: The lock as the factory method made it.
        function: What to run; ``UNSET`` if it is still to come.
        on_contended: What a call does while another client holds the lock; ``UNSET``: it waits.

    Raises:
        ConfigurationError: It is no plain function, or has no argument that a field of the name asks for.
    """
    on_contended = _checked(lock, function, on_contended, "with")
    if isinstance(function, Unset):
        return functools.partial(decorated, lock, on_contended=on_contended)
    _check_plain(function)
    choose = _chooser(lock, function)
    timeout = plan_behind(lock).options.timeout if on_contended == "wait" else 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        chosen = choose(args, kwargs)
        lease = chosen.try_acquire() if on_contended == "skip" else chosen.acquire(timeout=timeout)
        if lease is None:
            _skipped(chosen.name, function)
            return None
        with lease, _under(lease):
            return _finished(function, function(*args, **kwargs))

    return call


def decorated_async(lock: Any, function: Callable[..., Any] | Unset, on_contended: str | Unset) -> Any:
    """The coroutine function, run under the lock by tasks; without one, what decorates it.

    Args:
        lock: The lock as the factory method made it.
        function: What to run; ``UNSET`` if it is still to come.
        on_contended: What a call does while another client holds the lock; ``UNSET``: it waits.

    Raises:
        ConfigurationError: It is no coroutine function, or has no argument that a field of the name asks for.
    """
    on_contended = _checked(lock, function, on_contended, "async with")
    if isinstance(function, Unset):
        return functools.partial(decorated_async, lock, on_contended=on_contended)
    _check_coroutine(function)
    choose = _chooser(lock, function)
    timeout = plan_behind(lock).options.timeout if on_contended == "wait" else 0

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        chosen = choose(args, kwargs)
        if on_contended == "skip":
            lease = await chosen.try_acquire()
        else:
            lease = await chosen.acquire(timeout=timeout)
        if lease is None:
            _skipped(chosen.name, function)
            return None
        async with lease:
            with _under(lease):
                return await function(*args, **kwargs)

    return call


def _checked(lock: Any, function: object, on_contended: str | Unset, block: str) -> str:
    if not isinstance(on_contended, Unset):
        check_choice(on_contended, "on_contended", ("wait", "raise", "skip"))
        return on_contended
    if isinstance(function, Unset):
        what = source_of(lock)[0]
        raise ConfigurationError(
            f"a call of {what} decorates a function; to acquire, write `{block} {what} as lease:` without parentheses, "
            f"or {what}.acquire()"
        )
    return "wait"


def decorated_once(once: Any, function: Callable[P, R]) -> Callable[P, R]:
    """The function, run once by threads; each other call returns its result.

    Args:
        once: What ``Client.once`` made.
        function: What to run.

    Raises:
        ConfigurationError: It is no plain function, or has no argument that a field of the name asks for.
    """
    _check_plain(function)
    choose = _chooser(once, function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        chosen = choose(args, kwargs)
        with chosen as state:
            if isinstance(state, Done):
                return cast("R", state.value)
            if isinstance(state, Running):
                raise running(chosen.name, state)
            with _under(state.lease):
                result = _finished(function, function(*args, **kwargs))
            state.finish(result)
            return result

    return call


def decorated_once_async(
    once: Any, function: Callable[P, Coroutine[Any, Any, R]]
) -> Callable[P, Coroutine[Any, Any, R]]:
    """The coroutine function, run once by tasks; each other call returns its result.

    Args:
        once: What ``AsyncClient.once`` made.
        function: What to run.

    Raises:
        ConfigurationError: It is no coroutine function, or has no argument that a field of the name asks for.
    """
    _check_coroutine(function)
    choose = _chooser(once, function)

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        chosen = choose(args, kwargs)
        async with chosen as state:
            if isinstance(state, Done):
                return cast("R", state.value)
            if isinstance(state, Running):
                raise running(chosen.name, state)
            with _under(state.lease):
                result = await function(*args, **kwargs)
            await state.finish(result)
            return result

    return call


@contextmanager
def _under(lease: Any) -> Generator[None]:
    """The lease is what ``current_lease`` gives in here."""
    before = _current.set(lease)
    try:
        yield
    finally:
        _current.reset(before)


def _skipped(name: str, function: Callable[..., Any]) -> None:
    """Say that a call was skipped: its result, None, does not."""
    text = "%r is held by another client: skipping the call of %s"
    log.info(text, name, _word(function), extra={"pawlock_name": name})


def _chooser(lock: Any, function: Callable[..., Any]) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Any]:
    """What picks the lock of one call: always the same one, or the one that the arguments name."""
    kind, (text,), options = source_of(lock)
    if plain(text) is not None:
        return lambda _args, _kwargs: lock
    template = Template(text)
    signature = _signature(template, function)
    extra = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)

    def choose(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        if extra is not None:
            arguments = {**arguments[extra], **arguments}
        return make(client_of(lock), kind, (escape(template.fill(arguments)),), options)

    return choose


def _signature(template: Template, function: Callable[..., Any]) -> inspect.Signature:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"name {template.text!r} has fields, and the arguments of {_word(function)} cannot be read"
        ) from error
    known = signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return signature
    missing = [field for field in template.fields if field not in known]
    if missing:
        has = ", ".join(known) or "none"
        raise ConfigurationError(
            f"name {template.text!r}: {_word(function)} has no argument {', '.join(missing)}; it has: {has}"
        )
    return signature


def _check_plain(function: Callable[..., Any]) -> None:
    check_function(function)
    if _is_coroutine_function(function):
        raise ConfigurationError(
            f"{_word(function)} is a coroutine function, and this client is sync: use pawlock.connect_async()"
        )


def _finished(function: Callable[..., Any], result: R) -> R:
    """What a plain function returned; one that hides a coroutine function, as other decorators do, has not run yet."""
    if inspect.iscoroutine(result):
        result.close()
        text = f"{_word(function)} returned a coroutine, which would run without the lock: use pawlock.connect_async()"
        raise TypeError(text)
    return result


def _check_coroutine(function: Callable[..., Any]) -> None:
    check_function(function)
    if not _is_coroutine_function(function):
        raise ConfigurationError(
            f"{_word(function)} is not a coroutine function, and this client is async: write async def, "
            "or use pawlock.connect()"
        )


def check_function(function: Any) -> None:
    """Refuse what is no function that runs when it is called.

    Raises:
        ConfigurationError: It is that.
    """
    for wrapper in (staticmethod, classmethod):
        if isinstance(function, wrapper):
            raise ConfigurationError(
                f"put the decorator below @{wrapper.__name__}, so that it gets the function"
            )
    if not callable(function) or isinstance(function, type):
        raise ConfigurationError(
            f"this decorates functions and methods, not {type(function).__name__} {function!r:.40}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"{_word(function)} is a generator function: its body runs after the call")


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _word(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))
