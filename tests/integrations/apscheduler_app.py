"""A scheduler whose job says when it began and ended, and hangs once when asked to: ``URL FILE WORD``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from apscheduler.schedulers.blocking import BlockingScheduler

import pawlock
from pawlock.integrations.apscheduler import firing, once

EVERY = 0.2
url, path, word = sys.argv[1:]
scheduler = BlockingScheduler(timezone="UTC")


def say(what: str) -> None:
    line = f"{word} {what} {firing().scheduled.timestamp():.1f} {firing().lease.fence}\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


with pawlock.connect(url, ttl=1) as client:
    options = {"misfire_grace_time": None, "coalesce": False, "max_instances": 100}

    @once(client, "report:{scheduled}")
    def report() -> None:
        say("began")
        try:
            Path(path + ".hang").rename(path + ".hung")
        except FileNotFoundError:
            say("ended")
        else:
            scheduler.pause()
            time.sleep(0.1)  # a firing that runs beside this one ends first
            say("hangs")
            time.sleep(600)

    scheduler.add_job(report, "interval", seconds=EVERY, start_date="2020-01-01T00:00:00", **options)
    scheduler.start()
