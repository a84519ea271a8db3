"""One text is one name, whichever door it comes through: the library, the command, HTTP, and paths of applications."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable
from urllib.parse import quote, unquote

from fastapi import Depends, FastAPI
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message

import pawlock
from pawlock.integrations import asgi
from tests.service.rig import App
from tests.support.command import PAWLOCK, call, environment
from tests.support.resp import texts
from tests.support.servers import Server

CAFES = ("caf\u00e9", "cafe\u0301", "CAFE\u0301", "cafe", " cafe", "cafe ", "cafe\u200b", "\ufeffcafe")
"""What a normal form, a fold of cases or a strip would make one."""
ALIKE = (
    "\ufb01",
    "fi",
    "\u212b",
    "\u00c5",
    "A\u030a",
    "\uff21",
    "\u0130",
    "i\u0307",
    "\u1e9e",
    "ss",
    "\u00a0",
    "\u3000",
)
BRACES = ("a{{b", "a}}b", '{"a": {"b": 1}}', "{x}", "{{x}}", "{0}", "{", "}")
PATHS = (
    "%",
    "%25",
    "a%41",
    "a+b",
    "a b",
    "a/b",
    "a//b",
    "/",
    "a?b",
    "a#b",
    ".",
    "..",
    "a:b",
    "-n",
    "--",
    "\\",
)
STRANGE = (
    "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u202eabc",
    "\u0661",
    "\uffff",
    "\U0010fffd",
)
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
NAMES = (
    st.sampled_from([*CAFES, *ALIKE, *BRACES, *PATHS, *STRANGE])
    | st.lists(st.sampled_from([*CAFES, *ALIKE, *BRACES, *PATHS, *STRANGE]), min_size=1, max_size=4).map(
        "".join
    )
    | st.text(st.characters(codec="utf-8"), min_size=1, max_size=50)
).filter(lambda text: len(text.encode()) <= 200)


def doubled(text: str) -> str:
    """The text as what the library takes for it: the pages say so of names that are data."""
    return text.replace("{", "{{").replace("}", "}}")


class Doors:
    """Takes a lock through each door in turn, and tells the keys that this made."""

    def __init__(self, server: Server, service: App) -> None:
        self.server, self.service = server, service

    def keys(self) -> list[str]:
        return sorted(
            key for key in texts(self.server.command("KEYS", "*")) if not key.startswith("{pawlock:")
        )

    def threads(self, name: str) -> list[str]:
        with pawlock.connect(self.server.url) as client, client.lock(doubled(name)) as lease:
            assert lease.name == name
            return self.keys()

    def asyncio(self, name: str) -> list[str]:
        async def hold() -> list[str]:
            async with pawlock.connect_async(self.server.url) as client, client.lock(doubled(name)) as lease:
                assert lease.name == name
                return self.keys()

        return asyncio.run(hold())

    def decorated(self, name: str) -> list[str]:
        with pawlock.connect(self.server.url) as client:

            @client.lock("{name}")
            def hold(name: str) -> list[str]:
                assert name
                return self.keys()

            return hold(name)

    def http(self, name: str) -> list[str]:
        base = f"/v1/ns/pawlock/lock/{quote(name, safe='').replace('.', '%2E')}"
        held = self.service.ask("POST", f"{base}/acquire", {})
        if held.status == 400:
            assert UNSEEN.search(name) or name in (".", ".."), held.body
            return []
        found = self.keys()
        assert (held.status, held.body["name"]) == (200, name)
        assert self.service.ask("POST", f"{base}/release", {"token": held.body["token"]}).status == 200
        return found

    def http_body(self, name: str) -> list[str]:
        base = "/v1/ns/pawlock/multi_lock"
        held = self.service.ask("POST", f"{base}/acquire", {"names": [name]})
        found = self.keys()
        assert (held.status, held.body["leases"][0]["name"]) == (200, name)
        leases = [{one: lease[one] for one in ("name", "token")} for lease in held.body["leases"]]
        assert self.service.ask("POST", f"{base}/release", {"leases": leases}).status == 200
        return found

    def fastapi(self, name: str) -> list[str]:
        return asyncio.run(self._asked(name, plain=False))

    def starlette(self, name: str) -> list[str]:
        return asyncio.run(self._asked(name, plain=True))

    async def _asked(self, name: str, *, plain: bool) -> list[str]:
        found: list[str] = []
        async with pawlock.connect_async(self.server.url) as client:
            guard = asgi.lock(client, "{name}")

            async def endpoint(request: Request) -> Response:
                async with guard.holding(request) as lease:
                    assert lease.name == name
                    found.extend(self.keys())
                return Response()

            app: Starlette = Starlette(routes=[Route("/x/{name:path}", endpoint)])
            if not plain:
                app = fast = FastAPI()

                @fast.get("/x/{name:path}", dependencies=[Depends(guard)])
                def handle(name: str) -> None:
                    assert name
                    found.extend(self.keys())

            status = await asked(app, f"/x/{name}")
        assert status == 200 or "\n" in name, status  # the path of a route ends at its line
        return found


async def asked(app: Starlette, path: str) -> int:
    """The status of one GET of a path that a server has decoded."""
    told: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        told.append(message.get("status", 0))

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    await app(scope, receive, send)
    return told[0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES)
@example("cafe\u0301")
@example('{"a": {"b": 1}}')
def test_every_door_makes_the_same_key_of_a_text(server: Server, service: App, name: str) -> None:
    doors = Doors(server, service)
    through: list[Callable[[str], list[str]]] = [
        doors.threads, doors.asyncio, doors.decorated, doors.http, doors.http_body, doors.fastapi, doors.starlette,
    ]  # fmt: skip
    made = {door.__name__: door(name) for door in through}
    for door, keys in made.items():
        # A key tells its name, so no two names have one.
        assert [unquote(key, errors="strict") for key in keys] in ([f"pawlock:{name}"], []), door
    assert len({key for keys in made.values() for key in keys}) == 1
    with pawlock.connect(server.url) as client, client.lock(doubled(name)):
        assert [one.name for one in client.locks()] == [name]
        code, told, _ = call("show", "--", name, env=environment(PAWLOCK_URL=server.url))
        if "\0" not in name:
            assert code == 0
            assert "nobody" not in told.splitlines()[0]


def test_a_process_that_holds_a_name_holds_it_for_all(server: Server, service: App) -> None:
    def run(name: str) -> int:
        command = [*PAWLOCK, "run", "-nq", name, "--", "true"]
        return subprocess.run(command, env=environment(PAWLOCK_URL=server.url), check=False).returncode

    with pawlock.connect(server.url) as client, client.lock("cafe\u0301"):
        assert [run(name) for name in CAFES[:3]] == [0, 75, 0]
