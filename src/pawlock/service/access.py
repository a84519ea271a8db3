"""Who may do what: bearer tokens, of which only hashes are kept, and what each may do in which namespaces."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from pawlock.core.protocol.options import seconds
from pawlock.errors import ConfigurationError
from pawlock.service.problems import Problem

__all__ = ["ROLES", "Access", "Principal", "entry_for", "hash_of", "new_secret", "write_private"]

log: logging.Logger = logging.getLogger("pawlock.service")

ROLES = ("read", "acquire", "force", "admin")
"""What a token may do. ``admin`` may do all; none of the others brings another along."""

_PREFIX = "pawlock_"
_CHECK_EVERY = 1.0
_LONGEST_TOKEN = 256
_RATE = 20000.0
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KNOWN = {"id", "hash", "namespaces", "keys", "roles", "expires", "rate", "not_before"}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks.

    Attributes:
        id: The name of its token; never the token.
        namespaces: Patterns of the namespaces that it may use; ``*`` stands for any text.
        roles: What it may do there.
        rate: Requests a second on one instance, with bursts of twice as many; 0: no limit.
        expires: When its token ends, in Unix time; None never.
        keys: Patterns of the keys of other programs that it may lock; none unless they are listed.
        hash: What is stored of its token.
    """

    id: str
    namespaces: tuple[str, ...]
    roles: frozenset[str]
    rate: float = _RATE
    expires: float | None = None
    keys: tuple[str, ...] = ()
    hash: str = field(default="", repr=False)

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
    entry: dict[str, Any] = {
        "id": ident,
        "hash": hash_of(secret),
        "namespaces": list(namespaces),
        "roles": list(roles),
    }
    if keys:
        entry["keys"] = list(keys)
    if expires is not None:
        entry["expires"] = datetime.fromtimestamp(expires, UTC).isoformat(timespec="seconds")
    _principal(entry, 0)
    return entry


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
        self._own[str(entry["hash"])] = _principal(entry, 0)

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
        listed: Any = cast("dict[str, Any]", data).get("tokens") if isinstance(data, dict) else None
        if not isinstance(listed, list):
            raise ConfigurationError(f'tokens {self.path}: it must be {{"tokens": [...]}}')
        entries = list(cast("Iterable[Any]", listed))
        found = [_principal(entry, number) for number, entry in enumerate(entries, 1)]
        hashes = [str(entry["hash"]) for entry in entries]
        self._known = dict(zip(hashes, found, strict=True))
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
        if found.expires is not None and time.time() >= found.expires:
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


def _principal(entry: object, number: int) -> Principal:
    where = f"token {number}" if number else "token"
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"{where}: it must be an object")
    fields = cast("Mapping[str, Any]", entry)
    if unknown := sorted(set(fields) - _KNOWN):
        raise ConfigurationError(f"{where}: unknown {', '.join(unknown)}; known: {', '.join(sorted(_KNOWN))}")
    ident = fields.get("id")
    if not isinstance(ident, str) or not _ID.fullmatch(ident):
        raise ConfigurationError(
            f"{where}: id must be 1 to 64 letters, digits, '.', '_' or '-', got {ident!r:.40}"
        )
    where = f"token {ident!r}"
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", str(fields.get("hash"))):
        raise ConfigurationError(f"{where}: hash must be sha256:<64 hex digits>; never the token itself")
    return Principal(
        ident,
        _words(fields.get("namespaces"), f"{where}: namespaces", None),
        frozenset(_words(fields.get("roles"), f"{where}: roles", ROLES)),
        seconds(fields.get("rate", _RATE), f"{where}: rate"),
        _moment(fields.get("expires"), where),
        _words(fields["keys"], f"{where}: keys", None) if "keys" in fields else (),
        str(fields["hash"]),
    )


def _words(value: object, what: str, allowed: tuple[str, ...] | None) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ConfigurationError(
            f"{what} must be a list of words: everything that it does not list is denied"
        )
    words = cast("Sequence[object]", value)
    for word in words:
        if not isinstance(word, str) or (allowed is not None and word not in allowed):
            hint = f"; known: {', '.join(allowed)}" if allowed else ""
            raise ConfigurationError(f"{what} has {word!r:.40}{hint}")
    return tuple(cast("Sequence[str]", words))


def _moment(value: object, where: str) -> float | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ConfigurationError(
            f"{where}: expires must look like 2030-01-31T00:00:00+00:00, got {value!r:.40}"
        ) from None
    if moment.tzinfo is None:
        raise ConfigurationError(f"{where}: expires has no time zone: add +00:00")
    return moment.timestamp()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
