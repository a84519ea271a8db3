"""How a refusal is checked: its class, and the word of its text that says what to mend."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import pawlock


@contextmanager
def case(*values: object) -> Iterator[None]:
    """Name the row of a table that was looked at when a check failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case of {', '.join(f'{value!r:.200}' for value in values)}")
        raise


def refused(
    what: Callable[[], object], word: str, error: type[BaseException] = pawlock.ConfigurationError
) -> str:
    """Check the class and the text of an error; return the text."""
    with pytest.raises(error) as caught:
        what()
    text = str(caught.value)
    assert word in text, text
    assert len(text) < 500, "a text is to be read"
    assert isinstance(caught.value, pawlock.PawlockError)
    if error is pawlock.ConfigurationError:
        assert isinstance(caught.value, ValueError)
        assert caught.value.code == "CONFIGURATION"
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), error)
    return text
