-- Returns the remaining count.
-- keys: latch, waiters, seen
-- args: rid
-- returns: {'I', rid, count (0: there is no latch), left, round, waiters}
-- invariant: it writes nothing.
--@include _gate
--@include _latch
return {'I', RID, latch.count, latch.left, latch.round, call('ZCOUNT', WAITERS, digits(now_ms), '+inf')}
