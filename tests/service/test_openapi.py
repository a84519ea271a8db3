"""The description of the service: a valid document, true, and the page that is made from it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.rig import App

ROOT = Path(__file__).resolve().parents[2]
_METHODS = {"get", "post", "delete"}
_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    from pawlock.service.access import Access
    from pawlock.service.app import create_app
    from pawlock.service.requests import State
    from pawlock.service.spaces import Spaces

    told = create_app(State(Spaces("redis://localhost"), Access())).openapi()
    copy: dict[str, Any] = json.loads(json.dumps(told, allow_nan=False))
    return copy


def every(value: Any) -> Iterator[Any]:
    yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from every(one)


def check_schema(schema: dict[str, Any]) -> None:
    kinds = schema.get("type", [])
    assert set([kinds] if isinstance(kinds, str) else kinds) <= _TYPES, schema
    assert set(schema.get("required", [])) <= schema.get("properties", {}).keys(), schema
    for one in (*schema.get("properties", {}).values(), *schema.get("anyOf", [])):
        check_schema(one)
    if "items" in schema:
        check_schema(schema["items"])


def test_it_is_a_valid_document(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    assert document["info"]["title"] == "pawlock"
    for one in every(document):
        if isinstance(one, dict) and isinstance(one.get("$ref"), str):
            found: Any = document
            for part in one["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            assert found
    ids: list[str] = []
    for path, methods in document["paths"].items():
        assert path.startswith("/")
        assert methods.keys() <= _METHODS
        for operation in methods.values():
            ids.append(operation["operationId"])
            check_operation(path, operation)
    assert len(ids) == len(set(ids))
    for schema in document["components"]["schemas"].values():
        check_schema(schema)


def check_operation(path: str, operation: dict[str, Any]) -> None:
    named = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
    assert named == set(re.findall(r"{(\w+)}", path))
    for one in operation.get("parameters", []):
        check_schema(one["schema"])
        assert one["in"] != "path" or one["required"]
    if "requestBody" in operation:
        check_schema(operation["requestBody"]["content"]["application/json"]["schema"])
    for status, response in operation["responses"].items():
        assert re.fullmatch("[245][0-9][0-9]", status)
        assert response["description"]
        for one in response["content"].values():
            if "$ref" not in one["schema"]:
                check_schema(one["schema"])


def test_each_operation_tells_how_it_fails_and_what_it_gives(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            responses = operation["responses"]
            (content,) = responses["200"]["content"].items()
            assert content[0].startswith("text/") or content[1]["schema"]["properties"], path
            for status, response in responses.items():
                if status != "200":
                    assert response["content"].keys() == {"application/problem+json"}
            if "{namespace}" in path:
                assert {"400", "401", "403", "422", "429", "503"} <= responses.keys()
                assert operation["security"] == [{"token": []}]


def test_answers_are_as_it_says(service: App, document: dict[str, Any]) -> None:
    kinds: dict[str, Any] = {
        "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
        "null": type(None),
    }  # fmt: skip

    def ask(method: str, template: str, body: object = None, status: int = 200, **fields: str) -> Any:
        answer = service.ask(method, template.format(**{"namespace": "pawlock", **fields}), body)
        assert answer.status == status, answer.body
        response = document["paths"][template][method.lower()]["responses"][str(status)]
        ((_, content),) = response["content"].items()
        schema = content["schema"]
        if "$ref" in schema:
            schema = document["components"]["schemas"]["Problem"]
        assert set(schema["required"]) <= answer.body.keys()
        if status == 200:
            assert answer.body.keys() <= schema["properties"].keys(), template
        for name, one in schema["properties"].items():
            if name in answer.body:
                wanted = [one["type"]] if isinstance(one["type"], str) else one["type"]
                assert isinstance(answer.body[name], tuple(kinds[kind] for kind in wanted)), (template, name)
        return answer.body

    base = "/v1/ns/{namespace}"
    lock: dict[str, Any] = {"kind": "lock", "name": "a"}
    token = {"token": ask("POST", f"{base}/{{kind}}/{{name}}/acquire", {"ttl": 20}, **lock)["token"]}
    ask("POST", f"{base}/{{kind}}/{{name}}/acquire", {}, 423, **lock)
    ask("GET", f"{base}/{{kind}}/{{name}}", **lock)
    ask("POST", f"{base}/{{kind}}/{{name}}/renew", {**token, "ttl": 20}, **lock)
    ask("GET", f"{base}/locks")
    ask("POST", f"{base}/{{kind}}/{{name}}/release", token, **lock)
    ask("POST", f"{base}/{{kind}}/{{name}}/release", token, 409, **lock)
    ask("POST", f"{base}/{{kind}}/{{name}}/force-release", {"reason": "x"}, 409, **lock)
    ask("POST", f"{base}/{{kind}}/{{name}}/acquire", {"ttl": 20}, **lock)
    ask("POST", f"{base}/{{kind}}/{{name}}/force-release", {"reason": "x"}, **lock)
    ask("GET", f"{base}/{{kind}}/{{name}}", **lock)
    ask("POST", f"{base}/sessions", {"ttl": 5})
    ask("GET", f"{base}/latch/{{name}}", name="l")
    ask("POST", f"{base}/latch/{{name}}/count-down", {"count": 1}, name="l")
    ask("POST", f"{base}/latch/{{name}}/wait", {"count": 1}, name="l")
    ask("POST", f"{base}/latch/{{name}}/reset", {"count": 1}, name="l")
    ask("POST", f"{base}/barrier/{{name}}/wait", {"parties": 1}, name="b")
    ask("GET", f"{base}/barrier/{{name}}", name="b")
    taken = ask("POST", f"{base}/multi_lock/acquire", {"names": ["x", "y"], "wait": 1})["leases"]
    leases = {"leases": [{"name": one["name"], "token": one["token"]} for one in taken]}
    ask("POST", f"{base}/multi_lock/renew", leases)
    ask("POST", f"{base}/multi_lock/release", leases)
    ask("GET", f"{base}/audit")
    ask("GET", "/v1/whoami")
    ask("GET", "/healthz")
    ask("GET", "/readyz")


def test_the_page_is_what_the_document_says() -> None:
    from tools import http_reference

    page = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    assert page == http_reference.page(), "run: python tools/http_reference.py"
