"""`python -m benchmarks.paths`: through which functions and modules do the four paths of a lock pass?

For each path: the calls of pawlock's own functions, the modules that they are in, and the moves from one module to another
in the order of the calls. The transports are left out. `--src` traces another checkout in the same way, and
`--show PATH` prints the calls themselves.

The paths: (a) a free lock, threads; (a') the same in asyncio; (b) asyncio, a hand-off from another client; (c) one
renewal in the background; (d) a release that hands over to a thread of the same client, and (d') one that may not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.server import Server

__all__ = ["PATHS", "main", "traced"]

PATHS = {
    "a": "threads, free",
    "a'": "asyncio, free",
    "b": "asyncio, hand-off from another client",
    "c": "one renewal in the background",
    "d": "release with local hand-over",
    "d'": "the same, refused",
}

# Run in a process of its own, so that another checkout can be imported: it may use the public API alone.
_TRACED = r"""
import asyncio, json, sys, threading, time
import pawlock
url, root = sys.argv[1], pawlock.__file__.rsplit("/", 1)[0] + "/"
LEFT_OUT = ("transport/", "testing/", "embedded/")
found, log, wanted = {}, [], None

def note(frame, event, argument):
    if event == "call" and (wanted is None or threading.current_thread() is wanted):
        name = frame.f_code.co_filename
        if name.startswith(root) and not name[len(root):].startswith(LEFT_OUT):
            log.append((name[len(root):], frame.f_code.co_name))

def trace(act):
    log.clear()
    sys.setprofile(note)
    try:
        return act()
    finally:
        sys.setprofile(None)

def section(lock):
    with lock:
        pass

def threads():
    with pawlock.connect(url, ttl=30) as client:
        lock = client.lock("a")
        for _ in range(20):
            section(lock)
        trace(lambda: section(lock))
        found["a"] = list(log)

async def tasks():
    async with pawlock.connect_async(url, ttl=30) as client, pawlock.connect_async(url, ttl=30) as other:
        lock, theirs = client.lock("b"), other.lock("b")
        async def one(lock):
            async with lock:
                pass
        for _ in range(20):
            await one(lock)
            await one(theirs)
        log.clear()
        sys.setprofile(note)
        await one(lock)
        sys.setprofile(None)
        found["a'"] = list(log)
        held = await theirs.acquire()
        async def wait():
            lease = await lock.acquire()
            # Here, so that what the event loop runs next is none of the path.
            sys.setprofile(None)
            return lease
        waiting = asyncio.ensure_future(wait())
        sys.setprofile(note)
        log.clear()
        await asyncio.sleep(0.05)
        sys.setprofile(None)
        begun = list(log)
        await held.release()
        # What the other client does is none of the path: its own release is done before this is traced.
        log.clear()
        sys.setprofile(note)
        lease = await waiting
        found["b"] = begun + list(log)
        await lease.release()

def renewal():
    global wanted
    threading.setprofile(note)
    wanted = threading.Thread()  # nobody, until it is known who renews
    before = set(threading.enumerate())
    with pawlock.connect(url, ttl=0.9) as client:
        with client.lock("c") as lease:
            time.sleep(0.15)
            (background,) = set(threading.enumerate()) - before
            # The first one connects.
            for _ in range(2):
                log.clear()
                wanted = background
                left = lease.remaining()
                while lease.remaining() <= left:
                    left = lease.remaining()
                    time.sleep(0.005)
                time.sleep(0.05)
                found["c"] = list(log)
    threading.setprofile(None)
    wanted = None

def handed():
    with pawlock.connect(url, ttl=30, handover=1) as client:
        lock, order = client.lock("d"), []
        def take(name):
            lease = lock.acquire()
            if name == "third":
                lease.release()
                return
            time.sleep(0.1)
            trace(lease.release)
            found[name] = list(log)
        first = lock.acquire()
        others = []
        for name in ("d'", "third"):
            others.append(threading.Thread(target=take, args=(name,)))
            others[-1].start()
            time.sleep(0.1)
        trace(first.release)
        found["d"] = list(log)
        for one in others:
            one.join()

threads()
asyncio.run(tasks())
renewal()
handed()
print(json.dumps(found))
"""


def traced(url: str, src: Path) -> dict[str, list[tuple[str, str]]]:
    """The calls of each path, as module and function, with the pawlock in this folder of sources."""
    done = subprocess.run(
        [sys.executable, "-c", _TRACED, url],
        env={**os.environ, "PYTHONPATH": str(src)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise SystemExit(f"{src}: {done.stderr[-2000:]}")
    found: dict[str, list[tuple[str, str]]] = json.loads(done.stdout)
    return found


def _figures(calls: list[tuple[str, str]]) -> tuple[int, int, int]:
    modules = [module for module, _ in calls]
    moves = sum(one != two for one, two in pairwise(modules))
    return len(calls), len(set(modules)), moves


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    here = Path(__file__).resolve().parent.parent / "src"
    parser.add_argument("--src", type=Path, action="append", help="a folder of sources; default: this one")
    parser.add_argument("--show", choices=list(PATHS), help="print the calls of one path")
    options = parser.parse_args(argv)
    with Server() as server:
        for src in options.src or [here]:
            found: dict[str, Any] = traced(server.url, src)
            print(f"{src}\n{'path':44}{'calls':>7}{'modules':>9}{'moves':>7}")
            for name, what in PATHS.items():
                calls, modules, moves = _figures(found[name])
                print(f"({name}) {what:40}{calls:>7}{modules:>9}{moves:>7}")
            if options.show:
                print("\n".join(" ".join(call) for call in found[options.show]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
