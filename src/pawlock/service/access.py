"""Who may do what: bearer tokens, of which only hashes are kept, and what each may do in which namespaces."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from pawlock.errors import ConfigurationError
from pawlock.service.problems import Problem

__all__ = ["ROLES", "Access", "Principal", "entry_for", "hash_of", "new_secret", "write_private"]

log: logging.Logger = logging.getLogger("pawlock.service")

Role = Literal["read", "acquire", "force", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""What a token may do. ``admin`` may do all; none of the others brings another along."""

_PREFIX = "pawlock_"
_CHECK_EVERY = 1.0
_LONGEST_TOKEN = 256


class Principal(BaseModel):
    """Who asks: an entry of the file of tokens. Everything that it does not list is denied.

    Attributes:
        id: The name of its token; never the token.
        hash: What is stored of its token.
        namespaces: Patterns of the namespaces that it may use; ``*`` stands for any text.
        roles: What it may do there.
        keys: Patterns of the keys of other programs that it may lock; none unless they are listed.
        rate: Requests a second on one instance, with bursts of twice as many; 0: no limit.
        expires: When its token ends; None never.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", repr=False)]
    namespaces: Annotated[list[str], Field(min_length=1)]
    roles: Annotated[list[Role], Field(min_length=1)]
    keys: list[str] = []
    rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 20000.0
    expires: AwareDatetime | None = None

    def may(self, role: str, namespace: str) -> bool:
        """Whether it may do this there."""
        if role not in self.roles and "admin" not in self.roles:
            return False
        return any(_fits(namespace, pattern) for pattern in self.namespaces)

    def may_lock(self, key: str) -> bool:
        """Whether it may do so with this key of the server, which belongs to no namespace."""
        return any(_fits(key, pattern) for pattern in self.keys)


@lru_cache(maxsize=4096)
def _fits(namespace: str, pattern: str) -> bool:
    # Only `*` has a meaning: a `?` or `[` in a namespace must not let anybody into its neighbours.
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), namespace, re.DOTALL) is not None


def new_secret() -> str:
    """A token of 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """The stored form of a token. A token has too much entropy to be guessed, so a slow hash would add nothing."""
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def entry_for(
    ident: str,
    secret: str,
    namespaces: Sequence[str],
    roles: Sequence[str],
    expires: float | None,
    keys: Sequence[str] = (),
) -> dict[str, Any]:
    """The line of the file of tokens for a new token."""
    given = {
        "id": ident, "hash": hash_of(secret), "namespaces": list(namespaces), "roles": list(roles), "keys": list(keys),
        "expires": expires,
    }  # fmt: skip
    return _principal(given).model_dump(mode="json", exclude_defaults=True)


@dataclass(slots=True)
class Access:
    """The tokens that are known, and how often each client asks this instance.

    Args:
        path: The file of tokens; read again when it changes. None: only those that are added.
    """

    path: Path | None = None
    _known: dict[str, Principal] = field(default_factory=dict[str, Principal])
    _own: dict[str, Principal] = field(default_factory=dict[str, Principal])
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    _stamp: tuple[int, int, int] | None = None
    _checked_at: float = 0.0

    def add(self, entry: Mapping[str, Any]) -> None:
        """Add a token, for this instance alone."""
        found = _principal(entry)
        self._own[found.hash] = found

    def load(self) -> None:
        """Read the file.

        Raises:
            ConfigurationError: It cannot be read, or is invalid.
        """
        if self.path is None:
            return
        try:
            status = self.path.stat()
            data: Any = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"tokens {self.path}: {error}") from error
        listed = cast("dict[str, Any]", data).get("tokens") if isinstance(data, dict) else None
        if not isinstance(listed, list):
            raise ConfigurationError(f'tokens {self.path}: it must be {{"tokens": [...]}}')
        listed = cast("list[object]", listed)
        found = [_principal(entry, f"tokens {self.path}, entry {at}") for at, entry in enumerate(listed, 1)]
        self._known = {one.hash: one for one in found}
        self._stamp = (status.st_mtime_ns, status.st_size, status.st_ino)

    def _refresh(self) -> None:
        now = time.monotonic()
        if self.path is None or now - self._checked_at < _CHECK_EVERY:
            return
        self._checked_at = now
        try:
            status = self.path.stat()
            if (status.st_mtime_ns, status.st_size, status.st_ino) != self._stamp:
                self.load()
                log.info("token file reloaded", extra={"pawlock_tokens": len(self._known)})
        except (OSError, ConfigurationError) as error:
            # Known tokens stay valid: a file that is being written must not lock everybody out.
            log.warning("cannot read the token file, keeping the previous tokens: %s", error)

    def who(self, header: str | None) -> Principal:
        """Who sends this ``Authorization`` header.

        Raises:
            Problem: 401; only ``TOKEN_EXPIRED`` says why the token is refused.
        """
        scheme, _, secret = (header or "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret or len(secret) > _LONGEST_TOKEN:
            raise _unknown("no bearer token: send 'Authorization: Bearer <token>'")
        self._refresh()
        try:
            # Looked up by its hash: the time that takes reveals nothing of the secret.
            digest = hash_of(secret)
        except UnicodeEncodeError:
            raise _unknown("invalid or unknown bearer token") from None
        found = self._own.get(digest) or self._known.get(digest)
        if found is None:
            raise _unknown("invalid or unknown bearer token")
        if found.expires is not None and datetime.now(UTC) >= found.expires:
            raise Problem(
                401, "TOKEN_EXPIRED", "the bearer token has expired: create a new one", challenge=True
            )
        return found

    def spend(self, who: Principal) -> None:
        """Count one request.

        Raises:
            Problem: 429; the client asks too often.
        """
        if not who.rate:
            return
        now = time.monotonic()
        left, at = self._buckets.get(who.id, (who.rate * 2, now))
        left = min(who.rate * 2, left + (now - at) * who.rate)
        self._buckets[who.id] = max(0.0, left - 1), now
        if left < 1:
            raise Problem(
                429, "RATE_LIMIT", f"more than {who.rate:g} requests per second: retry later", retry_after=1
            )


def _unknown(text: str) -> Problem:
    return Problem(401, "UNAUTHENTICATED", text, challenge=True)


def _principal(entry: object, which: str = "token") -> Principal:
    try:
        return Principal.model_validate(entry)
    except ValidationError as error:
        # Not what was given: it may be the token itself.
        found = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
        raise ConfigurationError(f"{which}: {text}") from None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
