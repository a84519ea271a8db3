"""What ends one block of an object that many may share: a lock, a multi-lock, a once."""

from __future__ import annotations

import asyncio
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar
from weakref import ref

from pawlock.errors import NotHeld

__all__ = ["Block", "InnerBlock", "Leaving", "Shared", "begun", "present_task"]

X = TypeVar("X")


class Block:
    """The end of one ``with`` block, and what the block has.

    The interpreter asks for it before the block begins, and has it exactly as long as the block lasts. So a block ends its
    own lease, in whatever thread or task it is left. One that a signal handler interrupts before the first step of its end
    drops what it has.

    Attributes:
        owner: The object whose block it is.
        frame: Which frame the block is in, by its ``id``. A frame would keep alive what its variables refer to.
        held: What the block has, in a tuple; None before it begins, and once its end has begun.
        task: Of a block of a thread, the task in which it is, if an event loop runs it.
    """

    # Not made by ``__init__``: each block would pay for the call.
    __slots__ = ("__weakref__", "frame", "held", "owner", "task")
    owner: Any
    frame: int
    held: tuple[Any] | None
    task: object

    def __call__(
        self,
        _: type[BaseException] | None = None,
        error: BaseException | None = None,
        __: TracebackType | None = None,
    ) -> Any:
        """End it: what an object of asyncio returns is to be awaited."""
        return self.owner._leave(self, error)  # noqa: SLF001 - of the class that has this as its end

    def stuck(self) -> bool:
        """Whether it is in another task of the thread that asks: while that waits, the task cannot leave it."""
        return self.task is not None and self.task is not present_task()


class InnerBlock(Block):
    """The block of a lease that was held before: of that, nobody else would end this level."""

    __slots__ = ()

    def __del__(self) -> None:
        if self.held is not None:
            self.held[0].drop_level()


def _none() -> None:
    """No block begins; and it is in no task."""


def present_task() -> object:
    """The present task, which is not kept; None where no event loop runs one."""
    loop = asyncio._get_running_loop()
    task = None if loop is None else asyncio.current_task(loop)
    return None if task is None else ref(task)


class _Begun(threading.local):
    block: Any = staticmethod(_none)


_begun = _Begun()


class Leaving:
    """``__exit__`` or ``__aexit__`` of a class: another ``Block`` each time that it is asked for.

    Args:
        task: Says in which task a block of a thread is.
    """

    def __init__(self, task: Callable[[], object] = _none) -> None:
        self._task = task

    def __get__(self, owner: Any, cls: type) -> Any:
        if owner is None:
            # For an ``ExitStack``, which has no block of its own.
            return _leave_by_hand
        block = Block()
        block.owner, block.held, block.task = owner, None, self._task()
        block.frame = id(sys._getframe(1))
        _begun.block = ref(block)
        return block


def _leave_by_hand(owner: Any, _: object, error: BaseException | None, __: object) -> Any:
    return owner._leave(None, error)  # noqa: SLF001 - of the class that has this as its end


def begun(owner: object) -> Block | None:
    """The block that begins here; None if an object was entered without one, by an ``ExitStack`` or by hand."""
    block: Block | None = _begun.block()
    # Once: while its task sleeps on its way in or out, another one may enter the same object by hand.
    _begun.block = _none
    return block if block is not None and block.owner is owner else None


class Shared(Generic[X]):
    """An object whose blocks may be open in many threads or tasks at once."""

    __slots__ = ()
    _entered: list[tuple[object, X]]

    @property
    @abstractmethod
    def name(self) -> str:
        """What it locks."""

    @abstractmethod
    def _who(self) -> object:
        """The present thread or task."""

    def _begin(self, block: Block | None, held: X) -> None:
        """Note what a block has; where the interpreter knows of none, in which thread or task."""
        if block is None:
            self._entered.append((self._who(), held))
        else:
            block.held = (held,)

    def _taken(self) -> X:
        """What the present thread or task entered last without a block; in another one, what alone was entered so.

        Raises:
            NotHeld: That is nothing, or several. Nothing was released.
        """
        who = self._who()
        mine = [entry for entry in self._entered if entry[0] is who]
        found = mine[-1:] or self._entered.copy()
        if len(found) != 1:
            text = (
                f"leave {self.name!r}: not entered in this thread or task, and {len(found)} times in others"
            )
            raise NotHeld(text, name=self.name)
        self._entered.remove(found[0])
        return found[0][1]
