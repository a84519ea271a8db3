"""Who waits for whom: against everybody doing at once whatever they can."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pawlock.core.observe.wait_graph import Held, Name, Queued, Waiter, WaitGraph, Who
from tests.support.refusal import case


@dataclass
class World:
    """Names with holders and queues; ``limits``: 0 for readers and writers, None for a mutex."""

    limits: dict[str, int | None]
    held: dict[str, list[tuple[Who, str]]] = field(default_factory=dict[str, list[tuple[Who, str]]])
    queues: dict[str, list[tuple[Who, str]]] = field(default_factory=dict[str, list[tuple[Who, str]]])

    def fits(self, name: str, mode: str) -> bool:
        limit, modes = self.limits[name], [mode for _, mode in self.held[name]]
        if limit is None or mode == "x":
            return not modes
        return sum(map(int, modes)) + int(mode) <= limit if limit else "x" not in modes

    def waiting(self) -> set[Who]:
        return {who for queue in self.queues.values() for who, _ in queue}

    def take(self, name: str, who: Who, mode: str) -> None:
        free = not self.queues[name] and self.fits(name, mode)
        (self.held if free else self.queues)[name].append((who, mode))

    def run(self, stay: frozenset[Who] | None = None) -> set[Who]:
        """Who is left waiting once nothing moves any more; of all others than ``stay``, everything goes at once."""

        def kept(some: list[tuple[Who, str]]) -> list[tuple[Who, str]]:
            return [one for one in some if stay is None or one[0] in stay]

        world = World(
            self.limits,
            {name: kept(some) for name, some in self.held.items()},
            {name: kept(some) for name, some in self.queues.items()},
        )
        while world.step():
            pass
        return world.waiting()

    def step(self) -> bool:
        """Whoever waits for nothing gives back what it has, and the queues are served; False if nothing moved."""
        moved, stuck = False, self.waiting()
        for name, some in self.held.items():
            left = [one for one in some if one[0] in stuck]
            moved = moved or len(left) < len(some)
            self.held[name] = left
        for name, queue in self.queues.items():
            while queue and self.fits(name, queue[0][1]):
                self.held[name].append(queue.pop(0))
                moved = True
        return moved

    def graph(self, since: dict[Who, int], known: set[Who]) -> WaitGraph:
        """What is read of it, if only the waits of ``known`` are told."""
        graph, fence = WaitGraph(), 0
        for name, limit in self.limits.items():
            held: list[Held] = []
            for who, mode in self.held[name]:
                fence += 1
                held.append(Held(who, fence, 0, "" if limit is None else mode, bound=True))
            queue = [Queued(f"t{who[1]}", mode, old=True) for who, mode in self.queues[name]]
            shared = limit is not None
            graph.names[name] = Name(shared, limit or 0, tuple(held), tuple(queue) if shared else ())
            for who, _ in self.queues[name]:
                if who in known:
                    graph.waits[who] = Waiter(who, who[1], since[who], since[who], name, name, f"t{who[1]}")
        return graph


def world_of(rng: random.Random) -> tuple[World, dict[Who, int]]:
    """Some parties that take names one after the other, whichever come."""
    limits: dict[str, int | None] = {
        f"n{i}": rng.choice([None, 0, 0, 2, 3]) for i in range(rng.randint(2, 5))
    }
    world = World(limits, {name: [] for name in limits}, {name: [] for name in limits})
    since: dict[Who, int] = {}
    parties: list[Who] = [(f"host:1/{i % 3}", f"p{i}") for i in range(rng.randint(2, 8))]
    for step in range(rng.randint(4, 40)):
        free = [who for who in parties if who not in world.waiting()]
        if not free:
            break
        who, name = rng.choice(free), rng.choice(list(limits))
        limit = limits[name]
        if not limit and any(one == who for one, _ in world.held[name]):
            continue
        mode = (
            "x"
            if limit is None
            else rng.choice(["1", "1", "x"])
            if limit == 0
            else str(rng.randint(1, limit))
        )
        world.take(name, who, mode)
        since[who] = step
    return world, since


def test_a_knot_is_whoever_never_goes_on() -> None:
    found = 0
    for seed in range(600):
        world, since = world_of(random.Random(seed))
        stuck = world.run()
        deadlocks = world.graph(since, world.waiting()).deadlocks()
        around = {who: deadlocks.containing(who) for who in world.waiting()}
        for who, deadlock in around.items():
            if not deadlock:
                continue
            found += 1
            assert who in deadlock <= stuck, f"seed {seed}"
            assert world.run(deadlock) == deadlock, (
                f"seed {seed}: they wait for each other, and for nobody else"
            )
            youngest = max(deadlock, key=lambda one: since[one])
            assert any(one == youngest for some in world.held.values() for one, _ in some), f"seed {seed}"
            circle = [one.who for one in deadlocks.cycle(who, deadlock)]
            assert circle[0] == who
            assert set(circle) <= deadlock
        assert bool(stuck) == any(around.values()), (
            f"seed {seed}: whoever is stuck waits for a deadlock, if in none"
        )
    assert found > 100, "there are deadlocks in what is drawn"


def test_what_no_record_tells_is_about_to_go() -> None:
    """Of the stuck, some are not known: never more are taken to be stuck."""
    for seed in range(300):
        rng = random.Random(seed)
        world, since = world_of(rng)
        known = {who for who in sorted(world.waiting()) if rng.random() < 0.6}
        stuck = world.run()
        tickets = {("?", f"t{one[1]}") for one in stuck}
        deadlocks = world.graph(since, known).deadlocks()
        assert all(deadlocks.containing(who) <= stuck | tickets for who in known), f"seed {seed}"


def test_a_young_ticket_of_nobody_is_in_nobodys_way() -> None:
    for old in (True, False):
        with case(old):
            graph = WaitGraph()
            one, two = ("a", "1"), ("b", "2")
            queue = Queued("w", "x", old=old), Queued("t2", "1", old=False)
            graph.names["rw"] = Name(
                shared=True, limit=0, held=(Held(one, 1, 0, "1", bound=True),), queue=queue
            )
            graph.names["l"] = Name(shared=False, limit=0, held=(Held(two, 2, 0, "", bound=False),), queue=())
            graph.waits[one] = Waiter(one, "one", 1, 1, "l", "l", "")
            graph.waits[two] = Waiter(two, "two", 1, 2, "rw", "rw", "t2")
            deadlock = graph.deadlocks().containing(one)
            assert deadlock == ({one, two, ("?", "w")} if old else frozenset())
            if old:
                assert [w.name for w in graph.deadlocks().cycle(two, deadlock)] == ["rw", "rw", "l"]
