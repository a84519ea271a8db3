"""TERM and KILL of `pawlock run` both come while the lease is still ours."""

import pytest

from pawlock import ConfigurationError
from pawlock.cli._wrapper import check_kill_after


def test_kill_after_fits_into_the_lease() -> None:
    assert check_kill_after(5, 15) == 5
    assert check_kill_after(None, 60) == 5
    assert check_kill_after(None, 0.2) == pytest.approx(0.2 / 6)
    assert check_kill_after(5, 10, kills=False) == 5
    with pytest.raises(ConfigurationError, match=r"--ttl 15 or more, or --kill-after 3\.33 or less"):
        check_kill_after(5, 10)
