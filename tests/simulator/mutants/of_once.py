"""Wrong protocols of what is done once."""

from __future__ import annotations

from tests.unit.scripts.test_fuzz import MUTANTS as FUZZED

_RESENT = "if finisher == token or tomb == 'done' then\n  return {'R', RID}\nend\n"
_NOT_MINE = "if value ~= token then\n  local waiting"

SCRIPTS: dict[str, tuple[str, str]] = {
    "once: finish does not compare the token": (
        _NOT_MINE,
        "if false then\n  local waiting",
    ),
    "once: finish does not free the name": (
        "call('DEL', NAME)\ntrim_fence()\nbury(DEAD, tomb_ms, 'done')",
        "trim_fence()\nbury(DEAD, tomb_ms, 'done')",
    ),
    "once: finish records nothing": (
        "call('HSET', DONE, 'token', token, 'type', ARGV[3],",
        "call('HSET', DONE, 'token', token, 'kind', ARGV[3],",
    ),
    "once: a result has no expiry": ("call('PEXPIREAT', DONE, digits(now_ms + ARGV[5]))\n", ""),
    "once: a result is kept as long as a lease": (
        "call('PEXPIREAT', DONE, digits(now_ms + ARGV[5]))\n",
        "call('PEXPIREAT', DONE, digits(now_ms + 30000))\n",
    ),
    "once: a result has another value": ("'value', ARGV[4]", "'value', ARGV[3]"),
    "once: a result has the clock for a fence": ("'fence', ARGV[6]", "'fence', digits(now_ms)"),
    "once: a resent finish is called lost": (_RESENT, ""),
    "once: a resent finish records once more": (
        _RESENT + "if value ~= token then",
        "if value ~= token and finisher ~= token then",
    ),
    "once: a finish that was forgotten is called lost": (
        "bury(DEAD, tomb_ms, 'done')",
        "bury(DEAD, tomb_ms, tomb)",
    ),
    "once: waiters are not notified": (
        "  if channel and channel ~= '-' then\n    outbox",
        "  if false then\n    outbox",
    ),
    "once: finish serves no waiter": (
        "remove(gone)\nannounce()\nreturn {'R', RID}",
        "announce()\nreturn {'R', RID}",
    ),
    "once: begin ignores the result": ("if record[1] and call('GET', NAME) ~= ARGV[1] then", "if false then"),
    "once: forget frees the name": (
        "return {'R', RID, call('DEL', KEYS[2])}",
        "call('DEL', KEYS[1])\nreturn {'R', RID, call('DEL', KEYS[2])}",
    ),
    "once: a stranger abandons": FUZZED["leave does not compare"],
}
"""Wrong scripts: old text, new text."""

FAULTS: dict[str, tuple[str, ...]] = {
    "once: finish does not compare the token": ("pause", "suspend"),
    "once: a stranger abandons": ("pause", "suspend"),
    "once: a resent finish is called lost": ("reply_loss", "cut_in"),
    "once: a resent finish records once more": ("reply_loss", "cut_in"),
    "once: a finish that was forgotten is called lost": ("reply_loss", "cut_in"),
}
"""Which faults show it soonest, where not any will do."""
