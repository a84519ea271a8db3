"""What the simulator ran, run again on a real server: the same replies, messages and keys after each script.

The scripts of every primitive and of several masters come in the orders, with the copies and at the times that seeds
make of them. The clock of the real server is the run's, see `tests/unit/scripts/rig.py`.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from pawlock.testing.memory.store import ZSet
from tests.simulator import Plan, draw
from tests.simulator import node as sim_node
from tests.simulator.forms import FAMILIES
from tests.simulator.node import Node
from tests.simulator.simulation import Simulation, quiet
from tests.support.servers import Server
from tests.unit.scripts.rig import _DUMP, _MAIL, _OUR_CLOCK, _PUBLISH, Rig

FAULTS = (
    "double",
    "late_copy",
    "loss",
    "reply_loss",
    "delay",
    "pause",
    "kill",
    "cancel",
    "close",
    "no_scripts",
)
"""Those that touch no key but by scripts."""

WHERE = {
    "mutex": ("single", "redlock3"), "rwlock": ("single",), "multi_lock": ("single", "redlock3"),
    "semaphore": ("single",), "election": ("single",), "latch": ("single",), "barrier": ("single",),
    "once": ("single",),
}  # fmt: skip
FULL = int(os.environ.get("PAWLOCK_REPLAY_SEEDS", "140"))
"""Seeds of each family and topology in the slow test: more than a hundred thousand scripts."""

_MORE = """local function call(command, key, ...)
  local value, option, ms = ...
  if command == 'INFO' then return '' end
  if command == 'SET' and option == 'PX' then
    return redis.call('SET', key, value, 'PXAT', string.format('%.0f', math.floor(at / 1000) + ms))
  end
"""
"""What else goes by the server's own clock."""

_AT_ONCE = 100


class Step(NamedTuple):
    """A script that ran, and what came of it."""

    name: str
    source: str
    now_us: int
    drift_us: int
    keys: tuple[str, ...]
    args: tuple[str, ...]
    reply: Any
    mail: list[tuple[str, str]]
    after: dict[str, tuple[int, Any]]


class Recording:
    """Notes what each server of a run does."""

    def __init__(self, plan: Plan) -> None:
        self.steps: dict[str, list[Step]] = {}
        simulation = Simulation(plan)
        for node in simulation.fleet.nodes:
            self._listen(node)
        simulation.run()
        for member in simulation.members:
            member.kill()
        for closer in simulation.closers:
            closer.kill()

    def _listen(self, node: Node) -> None:
        judge, steps = node.judge, self.steps.setdefault(node.name, [])

        def ran(call: Any, words: list[bytes], reply: Any, *, changed: bool) -> None:
            steps.append(_step(node, call, words, reply))
            judge(call, words, reply, changed=changed)

        node.judge = ran


def _step(node: Node, call: Any, words: Sequence[bytes], reply: Any) -> Step:
    store, count = node.store, call.script.numkeys
    texts = [word.decode() for word in words]
    after = {
        key.decode(): (store.expires.get(key, -1), _content(store.data[key]))
        for key in words[:count]
        if key in store.data
    }
    return Step(
        call.script.name, call.script.source.decode(), store.now_us, store.drift_us, tuple(texts[:count]),
        tuple(texts[count:]), _text(reply), [(to.decode(), text.decode()) for to, text in node.messages], after,
    )  # fmt: skip


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [_text(one) for one in value]  # pyright: ignore[reportUnknownVariableType] - of a reply, so anything
    return value


def _content(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, ZSet):
        return [(member.decode(), float(value.scores[member])) for member in value.order()]
    if isinstance(value, list):
        return _text(value)
    return {field.decode(): text.decode() for field, text in value.items()}


def _seen(kind: str, content: Any) -> Any:
    if kind in ("string", "list"):
        return content[0] if kind == "string" else content
    pairs = list(zip(content[::2], content[1::2], strict=True))
    return dict(pairs) if kind == "hash" else [(member, float(score)) for member, score in pairs]


class Real:
    """A real server that runs the same steps."""

    def __init__(self, rig: Rig) -> None:
        self.redis = rig.redis
        self.shas: dict[str, str] = {}
        self.dump = self.redis.script_load(_DUMP)

    def sha(self, source: str) -> str:
        """A script with the run's own clock, whose messages are kept."""
        if source not in self.shas:
            clock = _OUR_CLOCK.replace("local function call(command, key, ...)\n", _MORE)
            text = source.replace("local call = redis.call\n", clock).replace(_PUBLISH, _MAIL)
            text = text.replace("redis.pcall('SET', ", "call('SET', ")
            self.shas[source] = self.redis.script_load(text)
        return self.shas[source]

    def follow(self, steps: Sequence[Step]) -> None:
        """Run the steps and compare each."""
        self.redis.flushall()
        for at in range(0, len(steps), _AT_ONCE):
            some = steps[at : at + _AT_ONCE]
            shas = [self.sha(step.source) for step in some]
            pipe = self.redis.pipeline(transaction=False)
            for step, sha in zip(some, shas, strict=True):
                pipe.delete("_mail")
                pipe.mset({"_now_us": step.now_us, "_drift_us": step.drift_us})
                pipe.evalsha(sha, len(step.keys), *step.keys, *step.args)
                pipe.evalsha(self.dump, len(step.keys), *step.keys)
                pipe.lrange("_mail", 0, -1)
            found = pipe.execute()
            for number, step in enumerate(some):
                _compare(step, *found[number * 5 + 2 : number * 5 + 5])


def _compare(step: Step, reply: Any, dump: Any, mail: list[str]) -> None:
    now_ms = step.now_us // 1000
    if step.name != "probe":
        assert reply == step.reply, step
    assert list(zip(mail[::2], mail[1::2], strict=True)) == step.mail, step
    real = {
        key: (expiry, _seen(kind, content))
        for key, (kind, expiry, content) in zip(step.keys, dump, strict=True)
    }
    # What ends in this very millisecond is not compared: when a server lets go of it is its own affair.
    assert _alive(real, now_ms) == _alive(step.after, now_ms), step


def _alive(keys: dict[str, tuple[int, Any]], now_ms: int) -> dict[str, tuple[int, Any]]:
    return {key: one for key, one in keys.items() if one[0] == -1 or one[0] > now_ms}


@pytest.fixture
def real(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Real]:
    # Far ahead of the server's own clock, by which nothing may end.
    monkeypatch.setattr(sim_node, "EPOCH_US", 4_000_000_000_000_000)
    rig = Rig(server.socket_path)
    if not rig.can_move_the_clock():
        rig.close()
        pytest.skip("a clock that the test moves needs a server with PEXPIRETIME (Redis 7.0, Valkey)")
    yield Real(rig)
    rig.close()


def _replay(real: Real, family: str, topology: str, seeds: range) -> Counter[str]:
    ran: Counter[str] = Counter()
    # What other tests left need not be looked at each time: that took nine tenths of the whole.
    gc.collect()
    gc.freeze()
    with quiet():
        for seed in seeds:
            plan = draw(seed, FAULTS, families=(family,), topologies=(topology,))
            for steps in Recording(plan).steps.values():
                real.follow(steps)
                ran.update(step.name for step in steps)
            # Simulations are circles, and nothing collects while all is quiet: thousands of them took five gigabytes.
            gc.collect()
    gc.unfreeze()
    return ran


def test_a_real_server_does_the_same(real: Real) -> None:
    ran: Counter[str] = Counter()
    for family, topologies in WHERE.items():
        for topology in topologies:
            ran += _replay(real, family, topology, range(3))
    assert WHERE.keys() == FAMILIES.keys()
    assert ran.total() > 2000
    assert {
        "acquire", "renew", "leave", "inspect", "observe", "hush", "arrive", "wait",
        "count_down", "grant", "begin", "finish", "forget",
    } <= ran.keys()  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_real_server_does_the_same_for_long(real: Real) -> None:
    every = [(family, topology) for family, topologies in WHERE.items() for topology in topologies]
    total = sum(_replay(real, *one, range(100, 100 + FULL)).total() for one in every)
    assert total > 700 * FULL
