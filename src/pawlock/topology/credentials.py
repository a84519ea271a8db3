"""Credentials that are not in the URL. Nothing here is ever shown."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Protocol

from pawlock.errors import ConfigurationError
from pawlock.topology.endpoint import ClusterNodes, Endpoint, Masters, Sentinels

__all__ = ["CredentialProvider", "Credentials"]


class CredentialProvider(Protocol):
    """What gives the present credentials: redis-py's protocol, so its providers serve as they are.

    One that also has ``get_credentials_async``, a coroutine function, is asked by that in asyncio.
    """

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """``(password,)`` or ``(username, password)``: asked for each connection that is made."""
        ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials that were given as arguments.

    Args:
        username: The ACL user; None: that of the URL, else the default user.
        password: Its password; None: that of the URL, else none.
        provider: Asked at each new connection instead; None: what stands above.

    Raises:
        ConfigurationError: A value that can never work, or a provider beside a username or password.
    """

    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    provider: CredentialProvider | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for what in ("username", "password"):
            value: object = getattr(self, what)
            if value is not None and not isinstance(value, str):
                # Never the value itself.
                raise ConfigurationError(f"{what} must be a str, got {type(value).__name__}")
        if self.provider is None:
            return
        provider: object = self.provider
        if inspect.isclass(provider) or not callable(getattr(provider, "get_credentials", None)):
            raise ConfigurationError("credential_provider must have a method get_credentials()")
        if self.username is not None or self.password is not None:
            raise ConfigurationError("pass credential_provider, or username and password, not both")

    def __bool__(self) -> bool:
        return (self.username, self.password, self.provider) != (None, None, None)

    def put_into(
        self, target: Endpoint | Sentinels | ClusterNodes | Masters
    ) -> Endpoint | Sentinels | ClusterNodes | Masters:
        """The target, with these credentials. What Sentinels themselves ask for stands in the URL.

        Raises:
            ConfigurationError: The URL has the same kind of credentials already.
        """
        if not self:
            return target
        if isinstance(target, Sentinels):
            return replace(target, master=self._put(target.master))
        if isinstance(target, (ClusterNodes, Masters)):
            return replace(target, nodes=tuple(self._put(node) for node in target.nodes))
        return self._put(target)

    def _put(self, endpoint: Endpoint) -> Endpoint:
        had = endpoint.settings
        given = {"username": self.username, "password": self.password, "credential_provider": self.provider}
        added = {key: value for key, value in given.items() if value is not None}
        clash = (
            {"username", "password"} & set(had) & (set(given) if self.provider is not None else set(added))
        )
        if clash:
            named = " and ".join(sorted(clash))
            raise ConfigurationError(f"{named} given both in the URL and as arguments: use one of them")
        return replace(endpoint, settings={**had, **added})
