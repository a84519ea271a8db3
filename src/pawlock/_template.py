"""Names with fields, as in ``"inventory:{product_id}"``: filled from the arguments of a decorated function.

A field is what ``str.format`` takes for one: ``{id}``, ``{order.id}``, ``{rows[0]}``, ``{day:%Y-%m}``.
``{{`` and ``}}`` stand for one brace each; a brace that begins no field stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import Any, cast

from pawlock.errors import ConfigurationError
from pawlock.primitives.registry import REGISTRY

__all__ = ["Template", "Unfilled", "escape", "make", "plain"]

_PIECE = re.compile(
    r"(?P<brace>\{\{|\}\})|(?P<field>\{(?P<name>\w*)(?:\.\w+|\[[^\[\]{}]+\])*(?:![rsa])?(?::[^{}]*)?\})"
)


def escape(text: str) -> str:
    """The text as a name that stands for exactly it: each brace doubled."""
    return text.replace("{", "{{").replace("}", "}}")


def plain(name: str) -> str | None:
    """The name that a text without fields stands for, or None if it has fields."""
    if "{" not in name and "}" not in name:
        return name
    if any(found["field"] for found in _PIECE.finditer(name)):
        return None
    return _PIECE.sub(lambda found: found[0][0], name)


class Template:
    """A name whose fields are filled at each call.

    Args:
        text: The name as it was given.

    Attributes:
        fields: The arguments that it needs, in order.

    Raises:
        ConfigurationError: A field has no name, or a number.
    """

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.fields: tuple[str, ...] = tuple(
            found["name"] for found in _PIECE.finditer(text) if found["field"]
        )
        for field in self.fields:
            if not field.isidentifier():
                raise ConfigurationError(
                    f"name {text!r}: field {{{field}}} is not an argument name; braces that are data are doubled: "
                    "text.replace('{', '{{').replace('}', '}}')"
                )
        pieces: list[str] = []
        end = 0
        for found in _PIECE.finditer(text):
            pieces += [escape(text[end : found.start()]), found[0]]
            end = found.end()
        self._format = "".join([*pieces, escape(text[end:])])

    def fill(self, arguments: Mapping[str, Any]) -> str:
        """The name for one call.

        Args:
            arguments: Those of the call, by name.

        Raises:
            ConfigurationError: An argument is missing, lacks what the field asks of it, or has no text of its own.
        """
        try:
            return _FORMATTER.vformat(self._format, (), arguments)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            if isinstance(error, ConfigurationError):
                raise
            kind = type(error).__name__
            raise ConfigurationError(
                f"name {self.text!r} cannot be filled from this call: {kind} {error}"
            ) from error


class _Formatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        cls = cast("Any", type(value))
        nameless = cls.__str__ is object.__str__ and cls.__repr__ is object.__repr__
        if nameless and cls.__format__ is object.__format__:
            # Its text would be its address: another lock for each object, which excludes nobody.
            raise ConfigurationError(
                f"a {cls.__name__} has no usable text for a field: name one of its attributes"
            )
        return super().format_field(value, format_spec)


_FORMATTER = _Formatter()


def make(client: Any, kind: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> Any:
    """What a client's factory method gives; of kind ``"rwlock.read"``, that part of it.

    A primitive that was registered with a function as its factory is made by that.
    """
    name, _, part = kind.partition(".")
    factory = getattr(REGISTRY.get(name), "factory", name)
    made = factory(client, *args, **given) if callable(factory) else getattr(client, name)(*args, **given)
    return getattr(made, part) if part else made


class Unfilled:
    """Stands for the primitive of a name with fields, which nobody can acquire."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind: str = kind
        self.name: str = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise ConfigurationError(
            f"name {self.name!r} has fields, which only a decorated function fills: is it an f-string without its f? "
            "Braces that are data are doubled: text.replace('{', '{{').replace('}', '}}')",
            name=self.name,
        )
