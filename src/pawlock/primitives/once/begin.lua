-- Starts what is to be done once: acquire.lua of the mutex, unless the result is there.
-- keys: name, fence, queue, tickets, dead, done
-- args: token, ttl_ms, ticket_ttl_ms, mode (0 try, 1 wait), block, channel, max_waiters,
--   fence_ttl_ms, rid
-- returns: what acquire.lua of the mutex returns | {'D', rid, type, value, fence, done_at_ms}
-- invariant: that of the mutex; and while the record of a result exists, nobody is granted the name or queued for it.
--@include _done
local function of_mutex()
--@include mutex.acquire
end
return done or of_mutex()
