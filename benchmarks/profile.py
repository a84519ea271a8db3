"""`python -m benchmarks.profile PEER`: where the client's time for one acquire + release goes.

Prints the Python calls for one pair (the steadiest of all costs: the machine's weather does not change it)
and the functions that take the most. The profiler makes Python dearer and leaves the kernel as it is: use the
order and the counts, take times from the benchmarks.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
from pathlib import PurePath
from typing import cast

from benchmarks.peers import PEERS, Handle, Peer
from benchmarks.server import Server

WARM_UP = 200


def _pairs(handle: Handle, count: int) -> None:
    for _ in range(count):
        handle.release(handle.acquire())


async def _pairs_async(handle: Handle, count: int) -> None:
    for _ in range(count):
        await handle.release(await handle.acquire())


def profile(peer: Peer, url: str, count: int) -> pstats.Stats:
    """Profile uncontended pairs of one thread."""
    if peer.open is None:
        raise SystemExit(f"{peer.label} has no threads")
    session = peer.open(url, {})
    handle = session.handle("bench-profile")
    _pairs(handle, WARM_UP)
    profiler = cProfile.Profile()
    profiler.enable()
    _pairs(handle, count)
    profiler.disable()
    session.close()
    return pstats.Stats(profiler)


async def profile_async(peer: Peer, url: str, count: int, tasks: int) -> pstats.Stats:
    """Profile uncontended pairs of some tasks, each on its own name, the event loop included."""
    if peer.open_async is None:
        raise SystemExit(f"{peer.label} has no asyncio api")
    session = await peer.open_async(url, {})
    handles = [await session.handle(f"bench-profile-{task}") for task in range(tasks)]
    await asyncio.gather(*(_pairs_async(handle, WARM_UP) for handle in handles))
    profiler = cProfile.Profile()
    profiler.enable()
    await asyncio.gather(*(_pairs_async(handle, count // tasks) for handle in handles))
    profiler.disable()
    await session.close()
    return pstats.Stats(profiler)


def show(stats: pstats.Stats, pairs: int, limit: int) -> None:
    """Print calls and microseconds for one pair."""
    # The documented way prints to a stream only.
    rows = cast("dict[tuple[str, int, str], tuple[int, int, float, float, object]]", vars(stats)["stats"])
    calls = sum(row[1] for row in rows.values())
    python = sum(row[1] for (file, _, _), row in rows.items() if file != "~")
    total = sum(row[2] for row in rows.values())
    print(f"calls for one pair: {calls / pairs:.1f}, of them {python / pairs:.1f} Python functions")
    print(f"profiled time for one pair: {total / pairs * 1e6:.1f} us\n")
    print(f"{'own us':>8} {'with callees':>12} {'calls':>7}  function")
    ordered = sorted(rows.items(), key=lambda item: -item[1][2])
    for (file, line, name), (_, called, own, cumulative, _) in ordered[:limit]:
        where = name if file == "~" else f"{'/'.join(PurePath(file).parts[-2:])}:{line} {name}"
        print(f"{own / pairs * 1e6:8.2f} {cumulative / pairs * 1e6:12.2f} {called / pairs:7.2f}  {where}")


def main(argv: list[str] | None = None) -> int:
    """Profile one library.

    Args:
        argv: Command line; None takes that of the process.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("peer", choices=sorted(PEERS))
    parser.add_argument(
        "--tasks", type=int, default=0, help="profile this many asyncio tasks instead of a thread"
    )
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--limit", type=int, default=40, help="functions shown")
    arguments = parser.parse_args(argv)
    peer = PEERS[arguments.peer]
    reason = peer.missing()
    if reason is not None:
        raise SystemExit(reason)
    with Server() as server:
        if arguments.tasks:
            stats = asyncio.run(profile_async(peer, server.url, arguments.pairs, arguments.tasks))
        else:
            stats = profile(peer, server.url, arguments.pairs)
    show(stats, arguments.pairs, arguments.limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
