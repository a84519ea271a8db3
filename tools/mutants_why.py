"""Why a mutant was not noticed: those that nobody can tell from pawl, and those that a test could."""

INSTANT = "the two differ only at one very instant of a clock of fractions of a second"
STRICT = "a check of pawl's own: both always have the same length"
DERIVED = "the field follows from the others, which are compared"

SAME: dict[str, str] = {
    "core/handover.py Place: 0.0 changed": "it is read during a streak only, and the first of a streak sets it",
    "core/quick.py hand_on: Gt in now >= tenure.valid_until": INSTANT,
    "core/claim.py _held: GtE in valid > engine.runtime.now()": INSTANT,
    "core/quick.py hand_on: no not in not place.sleepers": "the long way hands over as well, only slower",
    "core/operations.py _acquire_here: 0 plus one": "the fence of a lease of nothing; it is set before it is given",
    "core/deadlock.py _name: 0 plus one": "the limit of a name that is not shared is never read",
    "core/renewal.py _shared: True negated (2)": STRICT,
    "core/redlock.py _Attempt.outcomes: True negated": STRICT,
    "core/options.py LockOptions: False negated (21)": DERIVED,
    "core/options.py LockOptions: False negated (30)": DERIVED,
    "primitives/permits/leave.lua swapped with the next: call('HDEL', HOLDS, token) (2)": "both run, in one script",
}
"""The same to every caller, within what pawl promises."""

OPEN: dict[str, str] = {}
"""Somebody could tell, and no test does."""
