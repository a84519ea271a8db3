"""What ends one block of an object that many may share: a lock, a multi-lock, a once."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any
from weakref import ref

__all__ = ["Block", "InnerBlock", "Leaving", "begun"]


class Block:
    """The end of one ``with`` block, and what the block has.

    The interpreter asks for it before the block begins, and has it exactly as long as the block lasts. So a block ends its
    own lease, in whatever thread or task it is left. One that a signal handler interrupts before the first step of its end
    drops what it has.

    Attributes:
        owner: The object whose block it is.
        held: What the block has, in a tuple; None before it begins, and once its end has begun.
    """

    # Not made by ``__init__``: each block would pay for the call.
    __slots__ = ("__weakref__", "held", "owner")
    owner: Any
    held: tuple[Any] | None

    def __call__(
        self,
        _: type[BaseException] | None = None,
        error: BaseException | None = None,
        __: TracebackType | None = None,
    ) -> Any:
        """End it: what an object of asyncio returns is to be awaited."""
        return self.owner._leave(self, error)  # noqa: SLF001 - of the class that has this as its end


class InnerBlock(Block):
    """The block of a lease that was held before: of that, nobody else would end this level."""

    __slots__ = ()

    def __del__(self) -> None:
        if self.held is not None:
            self.held[0].drop_level()


def _none() -> None:
    """No block begins."""


class _Begun(threading.local):
    block: Any = staticmethod(_none)


_begun = _Begun()


class Leaving:
    """``__exit__`` or ``__aexit__`` of a class: another ``Block`` each time that it is asked for."""

    def __get__(self, owner: Any, cls: type) -> Any:
        if owner is None:
            # For an ``ExitStack``, which has no block of its own.
            return _leave_by_hand
        block = Block()
        block.owner, block.held = owner, None
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
