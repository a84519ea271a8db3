"""What `pawlock once` shows of a result that it did not record itself."""

import os

import pawlock
from pawlock.cli._output import Output, Recording


def test_a_header_that_is_not_its_own_is_shown_as_it_is() -> None:
    for value in (b"", b"[1]\nx", b'{"pawlock_once": 2}\nx', b'{"pawlock_once": 1}\nx', b"\xff\n"):
        output = Output()
        done = pawlock.Done(value, 1, None)  # type: ignore[arg-type]  # the time is not looked at
        assert Recording().replay(done, output) == 0
        assert b"".join(output.out._unshown) == value
        for one in (output.out, output.err):
            for end in (*one.pipe, one._stop, one._stopper):
                os.close(end)
