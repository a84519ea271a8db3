"""What anybody can guess is nobody's token: no script takes, renews, passes on or ends anything by it."""

from importlib.resources import files
from itertools import product
from typing import Any

import redis

from pawlock.core.scripts import for_several, header, load
from tests.support.refusal import case
from tests.support.scripts import package_of
from tests.support.servers import Server

PACKAGES = ("mutex", "permits", "election", "redlock")
# They take nothing: who asks who leads is noted, and woken.
WATCHING = {"observe", "hush"}
TOKENS = ("token", "old", "old_token")
CLOSED, SECRET = "closed@min_hold", "x" * 24
HOLD = f"{SECRET}@host:1/a"
NUMBERS = {
    "mode": "1",
    "wait": "0",
    "ttl_ms": "90000",
    "block": "1",
    "max_waiters": "100",
    "run": "",
    "others": "",
}
NUMBERS |= {
    "permits": "3",
    "channel": "ch",
    "ticket_ttl_ms": "90000",
    "tomb_ms": "0",
    "close_ms": "0",
    "proposal": "0",
}
NUMBERS |= {"last": "0", "promised_ms": "0", "cur": "1", "fence": "1", "part": "", "former": "", "round": "0"}


def _words(field: str) -> list[str]:
    depth, found = 0, [""]
    for letter in field:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            found.append("")
        elif not depth and letter != ")":
            found[-1] += letter
    return [word.strip() for word in found]


def _scripts() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for package in PACKAGES:
        for file in files(package_of(package)).iterdir():
            if file.name.endswith(".lua") and not file.name.startswith("_"):
                fields = header(file.read_text(encoding="ascii"), file.name)
                if set(_words(fields["args"])) & set(TOKENS) and file.name[:-4] not in WATCHING:
                    found.append((package, file.name.removesuffix(".lua")))
    return sorted(found)


SCRIPTS = _scripts()


def test_the_scripts_are_found() -> None:
    names = {name for package, name in SCRIPTS if package == "mutex"}
    assert {"acquire", "renew", "leave", "adopt", "renew_all"} <= names


def _state(client: Any) -> dict[bytes, tuple[bytes | None, bool]]:
    keys = sorted(client.keys("*"))
    # The expiry to 10 s: it falls while the test runs, and would be raised by far more.
    return {key: (client.dump(key), client.pttl(key) > 80_000) for key in keys}


def _hold(client: Any, kind: str, value: str) -> None:
    client.flushall()
    client.hset(
        "{n}:fence", mapping={"last": "1", "cur": "1", "v": "1", "x": "0", "limit": "3", "declared": "3"}
    )
    if kind == "permits":
        client.zadd("n", {f"1:{value}": 10**15})
        client.hset("{n}:holds", value, "1")
    else:
        client.set("n", value, px=60_000)
    for key in ("n", "{n}:fence", "{n}:holds"):
        client.pexpire(key, 60_000)


def test_no_script_takes_what_can_be_guessed_for_a_token(server: Server) -> None:
    for package, name in SCRIPTS:
        with case(package, name):
            _take_by_a_guess(server, package, name)


def _take_by_a_guess(server: Server, package: str, name: str) -> None:
    fields = header(files(package_of(package)).joinpath(f"{name}.lua").read_text(), name)
    args = _words(fields["args"])
    keys = [
        "n" if key.startswith(("name", "permits")) else f"{{n}}:{key.split()[0]}"
        for key in _words(fields["keys"])
    ]
    script = load(package_of(package), name)
    if name == "renew_all":
        script = for_several(script, 1)
    kind = "permits" if keys[0] == "n" and fields["keys"].startswith("permits") else "name"
    guesses = (f"closed.{HOLD}",) if kind == "permits" else (CLOSED,)
    asked = [arg for arg in args if arg in TOKENS]
    with redis.Redis(unix_socket_path=server.socket_path) as client:
        for guess, guessed in product(guesses, asked):
            known = {arg: f"{arg:z<24}@host:1/b" for arg in asked} | {guessed: guess}
            given = [known.get(arg, NUMBERS.get(arg, "90000")) for arg in args]
            _hold(client, kind, guess)
            before = _state(client)
            try:
                reply = client.execute_command("EVAL", script.source, len(keys), *keys, *given)
            except redis.ResponseError as error:
                assert "PAWLOCKARG" in str(error)  # noqa: PT017 - either way is right
            else:
                # Of several names, one by one: nothing was done for it.
                assert reply[0] not in (b"H", b"R") or reply[2] == [0], (guess, guessed, reply)
            assert _state(client) == before, (guess, guessed)
