"""A fuzzer of who may end what: clients of one service that try, at random, what is not theirs.

Every step draws an identity, a request that would end, prolong, pass on or take something, and a token, session
or key from all that this identity can know: what it was answered, what everybody may read, what can be guessed. What
it acquired itself it may end; after every other request each name must be as it was. Nothing here knows how tokens
are compared.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

import redis

import pawlock
from tests.service.rig import Answer, Service

SPACES = ("pawlock", "shared")
NAMES = ("a", "b", "c")
KINDS = ("lock", "fair_lock", "rlock", "semaphore", "rwlock_read", "rwlock_write", "election")
IDENTIFIERS = ("job-7", "a-worker-with-a-long-name", "closed")
LONGEST = 3600
_OF_A_SPACE = tuple(b"{%b}:1:" % space.encode() for space in SPACES)
"""Sessions, idempotency keys and the like: what decides nothing of a name."""


@dataclass
class Lease:
    """What an identity acquired."""

    space: str
    kind: str
    name: str
    body: dict[str, Any]
    more: dict[str, Any]


@dataclass
class Identity:
    """One client of the service."""

    name: str
    leases: list[Lease] = field(default_factory=list[Lease])
    sessions: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class Found(AssertionError):
    """Somebody did what it may not."""


class Intruder:
    """One run.

    Args:
        service: The service; its tokens know the identities `alice`, `bob` and `rita`, with no limit of their rate.
        path: The socket of the server behind it.
        seed: What everything is drawn from.
    """

    def __init__(self, service: Service, path: str, seed: int) -> None:
        self.service = service
        self.path = path
        self.random = random.Random(seed)
        # Any: the client's own annotations cover its replies only in part.
        self.redis: Any = redis.Redis(unix_socket_path=path)
        self.people = [Identity("alice"), Identity("bob")]
        self.clients = {
            space: pawlock.connect(f"unix://{path}", namespace=space, renew=False) for space in SPACES
        }
        self.public: set[str] = {"closed@min_hold", "job-7", "nobody"}
        self.kept: list[Any] = []

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        self.redis.close()

    # What there is ------------------------------------------------------------------------------------------------

    def state(self) -> dict[bytes, tuple[object, bool]]:
        """Each key of each name but tombstones: its content, and whether it lives longer than any client may ask for."""
        found: dict[bytes, tuple[object, bool]] = {}
        for key in sorted(self.redis.keys("*")):
            # The service leaves a lease that ran out, whoever asks for something in that moment.
            if not key.startswith(_OF_A_SPACE) and b":1:dead:" not in key:
                found[key] = self.redis.dump(key), self.redis.pttl(key) > 250_000
        return found

    def check_lives(self) -> None:
        """No lease lives longer than its client's limit."""
        for key in self.redis.keys("*"):
            left = self.redis.pttl(key)
            if not key.endswith(b":fence") and left > LONGEST * 1000 + 15_000:
                raise Found(f"{key!r} lives {left} ms, over the limit of every client")

    def hear(self, answer: Answer, secrets: tuple[str, ...] = ("token", "session")) -> None:
        """Note every word of an answer that is no secret of who asked."""

        def walk(value: object) -> None:
            if isinstance(value, dict):
                for key, inner in value.items():
                    if key not in secrets:
                        walk(inner)
            elif isinstance(value, list):
                for inner in value:
                    walk(inner)
            elif value is not None:
                self.public.add(str(value)[:200])

        walk(answer.body)

    # What they do -------------------------------------------------------------------------------------------------

    def ask(self, who: Identity, path: str, body: object, **headers: str) -> Answer:
        return self.service.ask("POST", path, body, token=who.name, headers=headers)

    def acquire(self) -> None:
        """Somebody takes something, as it may."""
        who, space, kind = (
            self.random.choice(self.people),
            self.random.choice(SPACES),
            self.random.choice(KINDS),
        )
        name, more = self.random.choice(NAMES), dict[str, Any]()
        taking = dict[str, str]()
        if kind == "rlock":
            taking["identifier"] = self.random.choice(IDENTIFIERS)
        if kind == "semaphore":
            more["permits"] = 3
        headers = {}
        if who.sessions and self.random.random() < 0.3:
            space, headers["Pawlock-Session"] = self.random.choice(who.sessions)
        ttl = {} if headers else {"ttl": 200}
        answer = self.ask(who, f"/v1/ns/{space}/{kind}/{name}/acquire", {**ttl, **more, **taking}, **headers)
        if answer.status == 200:
            who.leases.append(Lease(space, kind, name, answer.body, more))
        self.hear(answer)

    def release(self) -> None:
        """Somebody gives back what it took: that works."""
        who = self.random.choice(self.people)
        if not who.leases:
            return
        one = who.leases.pop(self.random.randrange(len(who.leases)))
        body = {"token": one.body["token"], **one.more}
        answer = self.ask(who, f"/v1/ns/{one.space}/{one.kind}/{one.name}/release", body)
        if answer.status != 200:
            raise Found(f"{who.name} lost {one} in between: {answer.body}")
        # A lock that it took once more by its identifier is one lease, which one release ends.
        who.leases = [other for other in who.leases if other.body["token"] != one.body["token"]]

    def open_session(self) -> None:
        who, space = self.random.choice(self.people), self.random.choice(SPACES)
        if len(who.sessions) < 4:
            answer = self.ask(who, f"/v1/ns/{space}/sessions", {"ttl": 300})
            who.sessions.append((space, answer.body["session"]))

    def keep_by_program(self) -> None:
        """A program of the library's own holds something, or leaves a name closed."""
        space, name = self.random.choice(SPACES), self.random.choice(NAMES)
        client = self.clients[space]
        draw = self.random.randrange(4)
        try:
            if draw == 0:
                self.kept.append(client.rlock(name, ttl=200).acquire(timeout=0))
            elif draw == 1:
                client.lock(name, ttl=200, min_hold=200).acquire(timeout=0).release()
            elif draw == 2:
                self.kept.append(client.lock(name, ttl=200).acquire(timeout=0))
            else:
                client.service().acquire(name, {"ttl": 200, "wait": 0})
        except pawlock.NotAcquired as error:
            self.public |= {str(error.holder), *str(error).split()}

    def look(self) -> None:
        """What everybody with the role `read` sees."""
        space = self.random.choice(SPACES)
        paths = [f"/v1/ns/{space}/locks", f"/v1/ns/{space}/audit"]
        paths += [f"/v1/ns/{space}/lock/{name}" for name in NAMES]
        self.hear(self.service.ask("GET", self.random.choice(paths), token="rita"))

    # What they may not --------------------------------------------------------------------------------------------

    def draw_token(self, who: Identity) -> str:
        """A token that this identity did not get for what it tries it on, from all that it can know."""
        words = sorted(self.public)
        word = self.random.choice(words)
        chance = "".join(self.random.choices("abcXYZ019", k=24))
        drawn = [
            word, f"{chance}@{self.random.choice(IDENTIFIERS)}",
            "closed@min_hold", f"closed@{word}", f"{chance}@{word}", f"x:{word}", "1", chance,
            f"closed.{chance}@{word}", *[one.body["token"] for one in who.leases[-3:]],
        ]  # fmt: skip
        return re.sub(r"[^\x21-\x7e]", "", self.random.choice(drawn))[:390] or "x"

    def attack(self) -> None:
        """One request that may change nothing of what its sender did not acquire."""
        who, space = self.random.choice(self.people), self.random.choice(SPACES)
        kind, name = self.random.choice(KINDS), self.random.choice(NAMES)
        token = self.draw_token(who)
        if any((one.space, one.name, one.body["token"]) == (space, name, token) for one in who.leases):
            return
        more: dict[str, Any] = {"permits": 3} if kind == "semaphore" else {}
        headers = self._headers()
        base = f"/v1/ns/{space}"
        ttl = {} if "Pawlock-Session" in headers else {"ttl": LONGEST}
        lease = [{"name": name, "token": token}]
        requests: list[tuple[str, object]] = [
            (f"{base}/{kind}/{name}/release", {"token": token, **more}),
            (f"{base}/{kind}/{name}/renew", {"token": token, **ttl, **more}),
            (f"{base}/multi_lock/release", {"leases": lease}),
            (f"{base}/multi_lock/renew", {"leases": lease, **ttl}),
            (f"{base}/{kind}/{name}/force-release", {"reason": "mine"}),
            (f"{base}/sessions/keep-alive", None),
        ]
        path, body = self.random.choice(requests)
        before = self.state()
        answer = self.ask(who, path, body, **headers)
        after = self.state()
        if after != before:
            changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
            raise Found(
                f"{who.name} changed {changed} by {path} {body} {headers}: {answer.status} {answer.body}"
            )
        self.hear(answer)

    def _headers(self) -> dict[str, str]:
        headers = dict[str, str]()
        if self.random.random() < 0.3:
            headers["Pawlock-Session"] = f"s{self.random.choice((5000, 999_999_999, 86_400_000))}-{'A' * 20}"
        if self.random.random() < 0.2:
            headers["Idempotency-Key"] = self.random.choice(("k1", "k2"))
        return headers

    def prolong(self) -> None:
        """Somebody renews what is its own, for as long as it can, in whatever session: its limit holds."""
        who = self.random.choice(self.people)
        if not who.leases:
            return
        one = self.random.choice(who.leases)
        sessions = [
            "s999999999-" + "A" * 20,
            *[session for other in self.people for _, session in other.sessions],
        ]
        session = self.random.choice(sessions)
        body: dict[str, Any] = {"token": one.body["token"], **one.more}
        path = f"/v1/ns/{one.space}/{one.kind}/{one.name}/renew"
        if one.kind == "lock" and self.random.random() < 0.5:
            body = {"leases": [{"name": one.name, "token": one.body["token"]}]}
            path = f"/v1/ns/{one.space}/multi_lock/renew"
        self.ask(who, path, body, **{"Pawlock-Session": session})
        self.check_lives()

    def run(self, steps: int) -> None:
        """So many steps."""
        doing = [self.acquire] * 3 + [self.release, self.open_session, self.keep_by_program, self.look]
        doing += [self.prolong] + [self.attack] * 14
        for step in range(steps):
            self.random.choice(doing)()
            if step % 150 == 149:
                # Names that are held or closed to the end would leave little to try.
                self.redis.flushall()
                for person in self.people:
                    person.leases.clear()
                    person.sessions.clear()
