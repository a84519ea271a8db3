"""What one request has others notified of: wake-ups, sent once its step is done."""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple, TypeAlias

__all__ = ["ASK_AGAIN", "NOWHERE", "Mail", "Message", "process_of", "shown", "tag_of"]

NOWHERE = "-"
"""The channel of who cannot be woken."""

ASK_AGAIN = (0, 1)
"""The fencing token and the expiry of a message that grants nothing and ends nothing: its reader asks."""


class Message(NamedTuple):
    """One wake-up.

    Attributes:
        channel: Where it is heard.
        token: Whom it is for.
        fence: The fencing token of the grant that it reports; 0: it reports none.
        expiry_ms: When that ends, on the table's clock; 0 with a fence of 0: the token's lease is over.
        behind: The tokens directly behind, of the same process.
    """

    channel: str
    token: str
    fence: int
    expiry_ms: int
    behind: tuple[str, ...] = ()


Mail: TypeAlias = "list[Message]"
"""What is to be sent, in order."""


def shown(token: str) -> str:
    """What others may see of a token: never its secret part."""
    return token.partition("@")[2]


def tag_of(token: str) -> str:
    """What names a token to other clients without its secret: the digest that its own client publishes."""
    return sha1(token.encode(), usedforsecurity=False).hexdigest()[:16]


def process_of(token: str) -> str:
    """The process that a token is of; ``""``: that cannot be seen."""
    return shown(token).rpartition("/")[0]
