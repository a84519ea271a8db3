"""Write docs/reference/http.md anew from the service's OpenAPI document; a test holds the two equal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from pawlock.service.access import Access  # noqa: E402  # of this checkout
from pawlock.service.app import create_app  # noqa: E402
from pawlock.service.requests import State  # noqa: E402
from pawlock.service.spaces import Spaces  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "http.md"
_INTRODUCTION = """\
# HTTP API (REST)

Every request of `pawlock serve`, from its OpenAPI document (`/openapi.json`). For examples see [Serve locks over
HTTP](../how-to/serve.md).

Every request except `/healthz` and `/readyz` needs `Authorization: Bearer <token>`. Request and response bodies are
JSON; unknown fields are refused. Percent-encode the parts of a path: a `/` in a name is `%2F`. `{kind}` is one of
`lock`, `fair_lock`, `rlock`, `semaphore` (with `permits`), `rwlock_read`, `rwlock_write`, `election`,
`key` (a [key of another program](../how-to/serve.md#keys-of-other-programs), its `{name}` such as `redisson:order:42`).
Parameters are fields of the body unless marked as query.

"""
_ERRORS = """\
Errors are `application/problem+json` with a stable `code`, and for [errors of the library](errors.md) also with `cause`
and `fix`:
"""
_COMMON = ("Idempotency-Key", "Pawlock-Session")
"""Headers of many requests, explained once."""


def document() -> dict[str, Any]:
    """The OpenAPI document of the service."""
    service = create_app(State(Spaces("redis://localhost"), Access()))
    return service.openapi()


def page() -> str:
    """The whole page."""
    told = document()
    parts = [_INTRODUCTION + "\n".join(_headers(told)), _ERRORS, *_statuses(told)]
    parts += [text for path, one in told["paths"].items() for text in _operations(path, one)]
    return "\n".join(parts).rstrip() + "\n"


def _acquire(told: dict[str, Any]) -> dict[str, Any]:
    """The operation that has every common header, and every status."""
    found: dict[str, Any] = told["paths"]["/v1/ns/{namespace}/{kind}/{name}/acquire"]["post"]
    return found


def _headers(told: dict[str, Any]) -> Iterator[str]:
    yield "| header | what |\n|---|---|"
    said = {one["name"]: one.get("description", "") for one in _acquire(told)["parameters"]}
    yield from (f"| `{name}` | {said[name]} |" for name in _COMMON)
    yield ""


def _statuses(told: dict[str, Any]) -> Iterator[str]:
    responses = _acquire(told)["responses"]
    yield "| status | when |\n|---|---|"
    for status, one in sorted(responses.items()):
        if status != "200":
            yield f"| {status} | {one['description']} |"
    yield ""


def _operations(path: str, one: dict[str, Any]) -> Iterator[str]:
    for method, operation in one.items():
        yield f"## {operation['summary']}: `{method.upper()} {path}`\n"
        yield f"{operation.get('description', '')}\n"
        headers = [one["name"] for one in operation.get("parameters", []) if one["name"] in _COMMON]
        if headers:
            yield f"Headers: {', '.join(f'`{name}`' for name in headers)}.\n"
        taken = list(_taken(operation))
        if taken:
            yield from taken
            yield ""
        answer = operation["responses"]["200"]["content"].get("application/json", {}).get("schema", {})
        fields = [f"`{name}`" for name in answer.get("properties", {})]
        if fields:
            yield f"Returns {', '.join(fields)}.\n"


def _taken(operation: dict[str, Any]) -> Iterator[str]:
    for one in operation.get("parameters", []):
        if one["in"] != "path" and one["name"] not in _COMMON:
            yield _field(one["name"], f"{one['in']}, {_type(one['schema'])}", one)
    body = operation.get("requestBody")
    schema = body["content"]["application/json"]["schema"] if body else {}
    for name, found in schema.get("properties", {}).items():
        needed = ", needed" if name in schema.get("required", []) else ""
        yield _field(name, f"{_type(found)}{needed}", found)


def _field(name: str, kind: str, told: dict[str, Any]) -> str:
    said = told.get("description")
    return f"- `{name}` ({kind})" + (f": {said}" if said else "")


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    kind = schema.get("type", "any")
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{words} of {_type(schema['items'])}" if schema.get("items") else words


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
