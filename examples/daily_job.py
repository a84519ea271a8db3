"""Three schedulers start the same daily job, one of them runs it: `min_hold` covers the skew of their clocks."""

import time

import pawlock

SKEW = 0.2
"""How far each machine's clock is behind the one before, in seconds."""


def run_daily(scheduler: str, done: list[str]) -> None:
    """What cron starts on each machine."""
    with pawlock.connect() as client:
        # Not `with client.lock(…)`: who finds the name taken has nothing to wait for. The job is over in no time;
        # without min_hold, a scheduler whose clock is behind would find the name free again. Five minutes are more
        # than clocks differ, and less than until tomorrow.
        lease = client.lock("daily:report", min_hold=300).try_acquire()
        if lease is None:
            return
        with lease:
            done.append(scheduler)


def main() -> None:
    """Let three schedulers fire, each a little later than the one before."""
    done: list[str] = []
    for scheduler in ("a", "b", "c"):
        run_daily(scheduler, done)
        time.sleep(SKEW)
    print(f"the job ran {len(done)} time on scheduler {' and '.join(done)}")


if __name__ == "__main__":
    main()
