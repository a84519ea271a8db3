"""Why a mutant was not noticed: those that nobody can tell from pawlock, and those that a test could."""

INSTANT = "the two differ only at one very instant of a clock of fractions of a second"
STRICT = "a check of pawlock's own: both always have the same length"
DERIVED = "the field follows from the others, which are compared"

LONG_WAY = "the short way is not taken; the long way does the same"
IN_ONE_SCRIPT = "both run in one script, and nothing is between them"
NEVER_ABSENT = "the record has `last` wherever it has `v`, so what stands in for it is never read"

SAME: dict[str, str] = {
    "core/state/local_queue.py Place: 0.0 changed": "it is read during a streak only, and the first one sets it",
    "core/release/first_step.py hand_on: Gt in now >= server lease.valid_until": INSTANT,
    "core/acquire/queue.py _held: GtE in valid > engine.runtime.now()": INSTANT,
    "core/release/first_step.py hand_on: no not in not place.local waiters": "the long way hands over too, but slower",
    "core/acquire/acquire.py _acquire_here: 0 plus one": "the fence of a lease of nothing; set before it is given",
    "core/observe/deadlock.py _name: 0 plus one": "the limit of a name that is not shared is never read",
    "core/maintenance.py _shared: True negated (2)": STRICT,
    "core/acquire/candidate.py _Attempt.outcomes: True negated": STRICT,
    "core/protocol/options.py LockOptions: False negated (21)": DERIVED,
    "core/protocol/options.py LockOptions: False negated (30)": DERIVED,
    "core/observe/wait_graph.py Deadlocks._in_the_way: None for return set()": (
        "both are taken for nobody, and a ring is looked for among those only who wait for somebody"
    ),
    "core/observe/operator.py _records: True negated (2)": STRICT,
    "primitives/permits/leave.lua swapped with the next: call('HDEL', HOLDS, token) (2)": IN_ONE_SCRIPT,
    "primitives/mutex/acquire.lua swapped with the next: call('SET', NAME, token, 'PXAT', now_ms + ttl_ms)": (
        f"{IN_ONE_SCRIPT}; a server out of memory refuses whichever comes first"
    ),
    "primitives/session/publish.lua swapped with the next: "
    "call('SET', RECORD, string.format('%.0f %.0f ', now_ms, number) .. ARGV[4], 'PXAT', expiry)": IN_ONE_SCRIPT,
    "primitives/session/remember.lua left out: call('ZCARD', HISTORY)": (
        "it only looks at the type, and so does the first row before anything is written"
    ),
    "primitives/mutex/acquire.lua number plus one: "
    "local kept = ARGV[8] == '0' or (fence[2] or 0) - ARGV[8] * 23 / 24 >= now_ms (2)": LONG_WAY,
    "primitives/mutex/acquire.lua or to and: "
    "local kept = ARGV[8] == '0' or (fence[2] or 0) - ARGV[8] * 23 / 24 >= now_ms": LONG_WAY,
    "primitives/mutex/leave.lua <= to <: "
    "if math.max(kept_ms, tonumber(expiry)) <= tonumber(lives_ms or '0') then": LONG_WAY,
    "primitives/mutex/acquire.lua number plus one: "
    "local cur = math.max((fence[1] or 0) + 1, now_us) (2)": NEVER_ABSENT,
    "primitives/mutex/leave.lua number plus one: local cur = math.max((last or 0) + 1, now_us)": NEVER_ABSENT,
    "primitives/permits/_holders.lua number plus one: "
    "return tonumber(first[2]), first[1] and public(first[1]) (2)": "both are there, or neither is",
    "primitives/_tickets.lua - to +: local to = math.min(from + CHUNK - 1, #members)": (
        "of more than a thousand, two are removed twice"
    ),
    "primitives/permits/leave.lua QUEUE to HOLDS: "
    "if not refusal and state.count == 0 and call('ZCARD', QUEUE) == 0 then": (
        "nobody is in: the first waiter was let in before, so that there is neither a queue nor a hold"
    ),
    "primitives/barrier/arrive.lua number plus one: "
    "call('HSET', BARRIER, 'round', digits(math.max(round + 1, now_us)), 'number', '0')": (
        "a round's number has to rise, by whatever"
    ),
    "core/acquire/grant.py take_over: 0 plus one": "the fence of a lease of nothing; set before it is given",
    "core/acquire/ticket_batch.py apply_reply: 0 plus one": "it is read only where the answer names ranks",
    "core/keep/engine.py Engine.plan_service: GtE in server_lease.valid_until - now > 4 * _CONFIRM_AFTER": INSTANT,
    "core/keep/engine.py Engine.take_yeses: Lt in until <= limit": INSTANT,
    "core/protocol/engine.py 1000000000 plus one": "it stands for any number, and no semaphore has as many permits",
    "core/quorum/votes.py MergedVotes.__init__: 0 plus one": "the first answer sets it",
    "core/release/transfer.py _own_adopted: without refuse(engine, lease)": "who closes waits for it, and loses it",
    "core/state/local_queue.py LocalQueue.take_orphan: None for return False (2)": "both are taken for no",
}
"""The same to every caller, within what pawlock promises."""

OPEN: dict[str, str] = {}
"""Somebody could tell, and no test does."""
