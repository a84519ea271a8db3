-- Changes the number of permits. No holder loses any: if more are held than the new limit, waiters wait longer.
-- keys: permits, fence, queue, tickets, holds
-- args: limit, declared (by the client that changes it), fence_ttl_ms, rid
-- returns: {'L', rid, limit_before (0: none was stored)}
-- invariant: no holder is touched; waiters that fit now are granted, and those that never can are removed and notified.
local limit, declared = tonumber(ARGV[1]), tonumber(ARGV[2])
--@include _fence
--@include _holders
--@include _clock
local before = tonumber(call('HGET', FENCE, 'limit') or '0')
call('HLEN', HOLDS)
call('HLEN', TICKETS)
local longest_ms = call('PTTL', NAME)
local state = survey(limit)
local found = plan(state)
keep_limit(limit, declared, now_ms + math.max(longest_ms, 0))
local stale = settle(state, found)
bury_holders(state, found, stale)
remove(found.drop)
announce()
return {'L', RID, before}
