"""Three workers, of which one leads and works; when it goes, another one takes over with a higher fence."""

import threading

import pawlock

ROUNDS = 3


def worker(name: str, done: list[tuple[str, int]], stop: threading.Event) -> None:
    """Campaign, work while elected, resign, and campaign again, until all is done."""
    with pawlock.connect() as client:
        election = client.election("worker", identity=name, ttl=5)
        while not stop.is_set():
            try:
                with election.campaign(timeout=0.5) as lease:
                    if len(done) < ROUNDS:
                        lease.check()  # a leader that was paused stops here
                        done.append((name, lease.fence))
                    if len(done) >= ROUNDS:
                        stop.set()
            except pawlock.AcquireTimeout:
                continue  # somebody else leads; look whether to stop


def main() -> None:
    """Let three workers do three rounds, each under a leader of its own."""
    done: list[tuple[str, int]] = []
    stop = threading.Event()
    workers = [threading.Thread(target=worker, args=(f"app-{n}", done, stop)) for n in range(3)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    fences = [fence for _, fence in done]
    print(f"{len(done)} rounds, fences rise: {fences == sorted(set(fences))}")


if __name__ == "__main__":
    main()
