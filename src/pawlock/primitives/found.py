"""Maps the keys of a server back to lock names: the inverse of how the primitives build keys from names."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from pawlock.core.names import check_namespace
from pawlock.core.primitive import Found
from pawlock.errors import ConfigurationError
from pawlock.primitives.registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pawlock.core.options import LockOptions
    from pawlock.primitives.registry import Entry

__all__ = ["Finder"]

_MARK = "0name0"
_FENCE = ":fence"


def _is_namespace(text: str) -> bool:
    try:
        return check_namespace(unquote(text)) == text
    except ConfigurationError:
        return False


class Finder:
    """Finds the name that a key holds.

    Args:
        namespace: The namespace as keys begin with it; ``""``: names are keys.
        options: Of the client.
        everywhere: Whether to accept keys of any namespace: the text before the first colon.
    """

    def __init__(self, namespace: str, options: LockOptions, *, everywhere: bool) -> None:
        self._namespace = namespace
        self._options = options
        self._everywhere = everywhere
        self._forms: dict[str, dict[tuple[str, str], Entry]] = {}

    def __call__(self, key: str) -> Found | None:
        """The name of a key that ``NamespaceCalls.scan`` has found; None if the key holds none."""
        if self._namespace and not self._everywhere:
            return next(self._names_of(self._namespace, key), None)
        # It is the fence, behind the key of a lock's name or behind the key of permits.
        base = key.removesuffix(_FENCE)
        for at in (base, base[1:-1], base.removesuffix(":pawlock")):
            before = at.lstrip("{").partition(":")[0]
            for namespace in (before, "") if self._everywhere and _is_namespace(before) else ("",):
                for found in self._names_of(namespace, at):
                    if key.encode() in found.primitive.inspect(0).words():
                        return found
        return None

    def _names_of(self, namespace: str, key: str) -> Iterator[Found]:
        for (prefix, suffix), entry in self._forms_of(namespace).items():
            if key.startswith(prefix) and key.endswith(suffix) and len(key) > len(prefix + suffix):
                text = key[len(prefix) : len(key) - len(suffix)]
                # Without a namespace a name is taken as it stands.
                primitive = entry.of(namespace, unquote(text) if namespace else text, self._options)
                if primitive is not None and primitive.key == key:
                    yield Found(unquote(namespace), entry.listed_as, primitive)

    def _forms_of(self, namespace: str) -> dict[tuple[str, str], Entry]:
        """The prefix and suffix around the name in the key of each family."""
        if namespace not in self._forms:
            forms = self._forms[namespace] = {}
            # A name with braces, which only one without a namespace keeps, has its helper keys behind it.
            for mark in (_MARK,) if namespace else (_MARK, "{" + _MARK + "}"):
                for entry in REGISTRY.values():
                    if (primitive := entry.of(namespace, mark, self._options)) is not None:
                        prefix, _, suffix = primitive.key.rpartition(mark)
                        forms.setdefault((prefix, suffix), entry)
        return self._forms[namespace]
