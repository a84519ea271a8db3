"""The interpreter itself may stand still where a thread asks what the others do: see ``frames_of_threads``."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

PROGRAM: Final = """
import gc, sys, threading, time
from pawlock.runtimes.renewal_thread import frames_of_threads

gc.callbacks.append(lambda phase, info: time.sleep(0.001))
gc.set_threshold(1)
end = time.monotonic() + 2

def be_anywhere():
    event = threading.Event()
    while time.monotonic() < end:
        event.wait(0.0005)

def start_threads():
    while time.monotonic() < end:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

threads = [threading.Thread(target=work) for work in (be_anywhere, be_anywhere, start_threads, start_threads)]
for thread in threads:
    thread.start()
looks = 0
while time.monotonic() < end:
    assert threading.get_ident() in FRAMES()
    looks += 1
    time.sleep(0)
for thread in threads:
    thread.join()
assert gc.isenabled()
print("looked", looks > 0)
"""


def play(frames: str, seconds: float) -> str:
    line = [sys.executable, "-c", PROGRAM.replace("FRAMES", frames)]
    return subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=True).stdout


@pytest.mark.slow
def test_a_look_at_the_frames_of_threads_does_not_stop_the_process() -> None:
    assert play("frames_of_threads", 60) == "looked True\n"


@pytest.mark.slow
@pytest.mark.skipif(
    sys.version_info >= (3, 11, 9), reason="repaired in CPython 3.11.9 (python/cpython#106883)"
)
def test_without_care_it_stops() -> None:
    """So that the test above can fail, and the care is dropped once no supported Python needs it."""

    def play_often() -> None:
        for _ in range(5):
            play("sys._current_frames", 8)

    with pytest.raises(subprocess.TimeoutExpired):
        play_often()
