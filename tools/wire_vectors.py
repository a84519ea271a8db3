"""Write docs/wire/vectors.json: examples that a client in another language can check itself against.

Names and keys are computed; what tokens are accepted, and every reply, is recorded from a server that this starts.
`python tools/wire_vectors.py` writes the file anew; a test records it again, on each kind of server.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from pawlock.core.protocol.names import WIRE_VERSION, check_namespace, helper_key, key_of  # noqa: E402
from pawlock.errors import ConfigurationError  # noqa: E402
from tests.support.servers import Server  # noqa: E402
from tools.wire_scenes import Scenes  # noqa: E402

__all__ = ["Recorder", "record", "rendered"]

FILE = ROOT / "docs" / "wire" / "vectors.json"
SCRIPTS = ROOT / "docs" / "wire" / "scripts.json"
NAMESPACE, CHANNELS, END = "pawlock", "pawlock:wake:*", "pawlock:wake:end"
TOKEN = f"{'0123456789abcdefghijklmn'}@host:1/main"

NAMES = (
    ("pawlock", "order:42"),
    ("pawlock", "a {b} 100%"),
    ("pawlock", "{order}:42"),
    ("pawlock", "tab\tand\u2028line"),
    ("pawlock", "%7B"),
    ("pawlock", "ünï, 鍵 and 🔒"),
    ("pawlock", " two  spaces "),
    ("pawlock", "a:b::c"),
    ("pawlock", "\x7f\x85"),
    ("pawlock", "x" * 200),
    ("shop:eu", "order"),
    ("a b*[c]?", "order"),
    ("größe", "order"),
    ("", "order:42"),
    ("", "lock:{order}:42"),
    ("", "{order}"),
    # Refused.
    ("pawlock", ""),
    ("pawlock", "x" * 201),
    ("pawlock", "ü" * 101),
    (" pawlock", "order"),
    ("pa\nwl", "order"),
    ("", "100%"),
    ("", "{a}{b}"),
    ("", "a{}"),
    ("", "{order}:fence"),
    ("", "order:pawlock:1:queue"),
)

TOKENS = (
    TOKEN,
    f"{'A1b2C3' * 4}@",
    f"{'a' * 22}@host:1/two words",
    f"{'a' * 21}@host:1/main",
    f"{'a' * 20}-{'b' * 12}@host:1/main",
    "host.example@10.0.0.1",
    "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "owner=order-42@shared",
    "owner=a@b@shared",
    "owner=order-42",
    "owner=9f86d081884c7d65@service:1a2b3c",
    "owner=9f86d081884c7d65@service:xyz",
    "closed@min_hold",
    "closed@other",
    "closed.other",
    "1",
)

PLACEHOLDERS = {
    "$rid": "the last argument of the call; it is not among the arguments here",
    "$number:<i>": "an integer of more than 15 digits: equal numbers i stand for equal integers, a larger i for a "
    "larger one; as an argument: the integer that was received as this",
    "$time+<ms>": "a time of the server in ms, so far from now, give or take 500",
    "$left<=<ms>": "milliseconds that are left: at most so many, and more than 1000 less",
    "error": "the reply is an error that begins with this word",
    "messages": "what was published by the step: the channel, and the words of the message",
}

Json = Any
"""What a request, a reply or the file may hold."""

Step = dict[str, Any]


class Recorder:
    """Runs scripts, and writes down what was answered and published.

    Args:
        server: A server whose keys are deleted.
    """

    def __init__(self, server: Server) -> None:
        self._redis: Any = redis.Redis(unix_socket_path=server.socket_path, decode_responses=True)
        self._ear: Any = self._redis.pubsub()  # type: ignore[no-untyped-call]  # not typed by redis-py
        self._ear.psubscribe(CHANNELS)
        self._drain()
        self._scripts: dict[str, Any] = json.loads(SCRIPTS.read_text(encoding="utf-8"))["scripts"]
        self._steps: list[Step] = []
        self._seen: set[int] = set()
        self._scenes: list[Step] = []

    def close(self) -> None:
        """Close its connections."""
        self._ear.close()
        self._redis.close()

    # -- what a scene is made of

    def scene(self, about: str) -> None:
        """Begin anew, with an empty server."""
        self._end()
        self._redis.flushall()
        self._scenes.append({"about": about, "steps": self._steps})

    def run(self, script: str, names: Sequence[str] = ("n",), stem: str = "", **args: Json) -> list[Any]:
        """Run a script of scripts.json; arguments that are not given have the values of ``DEFAULTS``."""
        found = self._scripts[script]
        many = [{**args, **one} for one in args.pop("each", ({},))] if "each" in args else [args] * len(names)
        keys = [
            self.key(key["suffix"], name, stem, one)
            for name, one in zip(names, many, strict=True)
            for key in found["keys"]
        ]
        wanted = [arg["name"] for arg in found["arguments"][:-1]]
        words = [one[name] if name in one else default(name, one) for one in many for name in wanted]
        now = self._now()
        reply: Any
        try:
            reply = self._redis.evalsha(
                self._redis.script_load(found["source"]), len(keys), *keys, *words, "$rid"
            )
            shown: Any = self._shown(reply, now, left=True)
        except redis.ResponseError as error:
            reply, shown = [], {"error": str(error).split()[0]}
        step: Step = {"script": script, "keys": keys, "arguments": [self._shown(word, now) for word in words]}
        step["reply"] = shown
        if messages := self._drain():
            step["messages"] = [[channel, *self._words(words, now)] for channel, words in messages]
        self._steps.append(step)
        return reply if isinstance(reply, list) else [reply]

    def command(self, *words: str | int) -> None:
        """Do something to the keys that no script of pawlock does."""
        self._redis.execute_command(*words)
        self._steps.append({"command": [str(word) for word in words]})

    def wait(self, ms: int) -> None:
        """Let time pass."""
        time.sleep(ms / 1000)
        self._steps.append({"wait_ms": ms})

    def key(self, suffix: str, name: str = "n", stem: str = "", args: dict[str, Any] | None = None) -> str:
        """A key of a name, by the rules of scripts.json."""
        args = args or {}
        suffix = suffix.replace("<token>", str(args.get("token", args.get("value", ""))))
        suffix = suffix.replace("<old_token>", str(args.get("old_token", "")))
        if stem:
            suffix = suffix.replace(f"{WIRE_VERSION}:permits", f"{WIRE_VERSION}:{stem}")
        key = key_of(NAMESPACE, name)
        return helper_key(key, suffix) if suffix else key

    # -- how it is written down

    def scenes(self) -> list[Step]:
        """All scenes that were recorded."""
        self._end()
        return self._scenes

    def _end(self) -> None:
        """Number the large integers of the scene in their order."""
        order = {f"${number}$": f"$number:{i}" for i, number in enumerate(sorted(self._seen), 1)}

        def numbered(value: Json) -> Json:
            if isinstance(value, list):
                return [numbered(one) for one in value]
            return order.get(value, value) if isinstance(value, str) else value

        for step in self._steps:
            for field in ("arguments", "reply", "messages"):
                if field in step:
                    step[field] = numbered(step[field])
        self._steps, self._seen = [], set()

    def _now(self) -> int:
        seconds, us = self._redis.time()
        return int(seconds * 1000 + us // 1000)

    def _drain(self) -> list[tuple[str, list[str]]]:
        """What was published so far: a message of our own comes behind all of it."""
        self._redis.publish(END, "")
        found: list[tuple[str, list[str]]] = []
        while True:
            message = self._ear.get_message(timeout=10.0)
            if message is None:
                raise TimeoutError("a message was lost")
            if message["channel"] == END:
                return found
            if message["type"] == "pmessage":
                found.append((message["channel"], message["data"].split(" ")))

    def _shown(self, value: Json, now: int, *, left: bool = False) -> Json:
        if isinstance(value, list):
            return [self._shown(one, now, left=left) for one in value]
        if not isinstance(value, int):
            return value
        if value >= 10**15:
            self._seen.add(value)
            return f"${value}$"
        if value >= 10**12:
            return f"$time+{round((value - now) / 1000) * 1000}"
        return f"$left<={-(-value // 1000) * 1000}" if left and value >= 100 else value

    def _words(self, words: list[str], now: int) -> list[Any]:
        # A message is text; zeros are words of their own.
        return [self._shown(int(word), now) if word.isdigit() and word != "0" else word for word in words]


DEFAULTS: dict[str, Any] = {
    "ttl_ms": 30_000,
    "ticket_ttl_ms": 3000,
    "mode": 1,
    "block": 1,
    "max_waiters": 90,
    "fence_ttl_ms": 86_400_000,
    "tomb_ms": 0,
    "close_ms": 0,
    "run": "",
    "limit": 10,
    "most": 10,
    "beside": "",
    "permits": 2,
    "wait": 1,
    "others": "",
    "remember_ms": 60_000,
    "keep_ms": 60_000,
    "former": "",
    "part": "",
    "n": 1,
    "max_observers": 90,
    "promised_ms": 0,
}
"""Arguments that a scene does not give."""


def default(name: str, args: dict[str, Any]) -> Json:
    """The value of an argument that a scene does not give: a channel has the first letter of the token."""
    if name == "channel":
        return f"pawlock:wake:{str(args.get('token', '-'))[0]}"
    return DEFAULTS[name]


def names() -> list[Step]:
    """Each name with its keys, or with the reason why it is refused."""
    suffixes = sorted(
        {
            key["suffix"].replace("<token>", TOKEN)
            for name, script in json.loads(SCRIPTS.read_text(encoding="utf-8"))["scripts"].items()
            for key in script["keys"]
            if key["suffix"] and not name.startswith("session/") and "old_token" not in key["suffix"]
        }
        | {f"{WIRE_VERSION}:rwlock", f"{WIRE_VERSION}:history"}
    )
    found: list[Step] = []
    for namespace, name in NAMES:
        try:
            key = key_of(check_namespace(namespace), name)
        except ConfigurationError as error:
            found.append({"namespace": namespace, "name": name, "refused": str(error)})
            continue
        helpers = {suffix: helper_key(key, suffix) for suffix in suffixes}
        slots = {key_slot(one.encode()) for one in (key, *helpers.values())}
        if len(slots) > 1:
            raise ValueError(f"{name}: its keys are in several slots")
        found.append(
            {"namespace": namespace, "name": name, "key": key, "slot": slots.pop(), "helpers": helpers}
        )
    return found


def tokens(recorder: Recorder) -> list[Step]:
    """Each value: whether a holder with it is pawlock's, what is shown of it, and whether it may be used as a token."""
    found: list[Step] = []
    for value in TOKENS:
        recorder.scene("")
        recorder.command("SET", "pawlock:n", value, "PX", 30_000)
        busy = recorder.run("mutex/acquire", token="z" * 24 + "@z:1/main", mode=0)
        recorder.command("DEL", "pawlock:n")
        taken = recorder.run("mutex/acquire", token=value, mode=0)
        found.append({"value": value, "foreign": busy[3], "shown": busy[4], "accepted": taken[:1] == ["H"]})
    return found


def record(server: Server) -> Step:
    """Record everything on a server whose keys are deleted."""
    recorder = Recorder(server)
    try:
        known = tokens(recorder)
        recorder._scenes.clear()  # noqa: SLF001
        Scenes(recorder).all()
        return {
            "wire": WIRE_VERSION,
            "token": TOKEN,
            "placeholders": PLACEHOLDERS,
            "names": names(),
            "tokens": known,
            "scenes": recorder.scenes(),
        }
    finally:
        recorder.close()


def rendered(server: Server) -> str:
    """The text of the file, recorded on a server: a line for each example, so that it can be read."""
    found = record(server)

    def one(value: Json) -> str:
        return json.dumps(value, ensure_ascii=False)

    def rows(values: Sequence[Any], indent: str) -> str:
        return ",\n".join(f"{indent}{one(value)}" for value in values)

    scenes = ",\n".join(
        f'  {{"about": {one(scene["about"])}, "steps": [\n{rows(scene["steps"], "   ")}\n  ]}}'
        for scene in found["scenes"]
    )
    parts = [f' "{part}": {one(found[part])}' for part in ("wire", "token", "placeholders")]
    parts += [f' "{part}": [\n{rows(found[part], "  ")}\n ]' for part in ("names", "tokens")]
    return "{\n" + ",\n".join([*parts, f' "scenes": [\n{scenes}\n ]']) + "\n}\n"


def main() -> int:
    """Write the file."""
    with Server("valkey") as server:
        FILE.write_text(rendered(server), encoding="utf-8")
    print("docs/wire/vectors.json says what the server answers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
