"""Durations are written in one way, in every option and every variable of the environment."""

import click
import pytest

from pawlock._durations import seconds_of
from pawlock.cli.main import group
from tests.cli.conftest import Pawlock
from tests.support.command import call, environment

READ = {
    "0": 0, "90": 90, "1.5": 1.5, "1e3": 1000, "500ms": 0.5, "90s": 90, "5m": 300, "1.5h": 5400, "30d": 2592000,
    "2w": 1209600, " 3s ": 3,
}  # fmt: skip
REFUSED = ["", "x", "-1", "-1s", "nan", "1y", "1 2", "1..2", "5M", "s", "1h30m", "٣", "0x10", "1_0"]


def test_what_is_read() -> None:
    assert {text: seconds_of(text) for text in READ} == READ
    assert [text for text in REFUSED if seconds_of(text) >= 0] == []


def _durations(command: click.Command, path: str = "") -> list[tuple[str, str]]:
    """Each option of each command that takes a duration."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
        return [row for name, one in below if one is not None for row in _durations(one, f"{path} {name}")]
    return [
        (path.strip(), one.opts[-1])
        for one in command.params
        if isinstance(one, click.Option)
        and (one.metavar == "TIME" or isinstance(one.type, click.types.FloatParamType))
    ]


def test_every_option_takes_them_and_refuses_the_rest_in_the_same_words() -> None:
    found = _durations(group)
    assert {option for _, option in found} >= {
        "--ttl", "--wait", "--kill-after", "--max-hold", "--min-hold", "--keep", "--interval", "--drain-delay", "--expires",
    }  # fmt: skip
    for verb, option in found:
        code, out, said = call(*verb.split(), option, "1y")
        assert (code, out) == (64, ""), (verb, option)
        assert "must be seconds, or a number with ms, s, m, h, d or w, got '1y'" in said, (verb, option)


def test_a_command_takes_them(pawlock: Pawlock) -> None:
    code, _, said = pawlock.run(
        "run", "-v", "--ttl", "0.5m", "-w", "500ms", "job", "--", "sh", "-c", "exit $PAWLOCK_TTL_MS"
    )
    assert code == 30000 % 256, said


@pytest.mark.parametrize(("variable", "text"), [("PAWLOCK_TTL", "1y"), ("PAWLOCK_TIMEOUT", "soon")])
def test_the_environment_takes_them_too(pawlock: Pawlock, variable: str, text: str) -> None:
    env = {"PAWLOCK_URL": pawlock.server.url}
    assert call("ls", env=environment(**env, **{variable: "1m"}))[0] == 0
    code, _, said = call("ls", env=environment(**env, **{variable: text}))
    assert code == 64
    assert f"{variable} must be seconds, or a number with ms, s, m, h, d or w, got '{text}'" in said
