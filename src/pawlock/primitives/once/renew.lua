-- Renews the client that runs it, or one that waits for its result: renew.lua of the mutex, unless the result is there.
-- keys: name, fence, queue, tickets, done
-- args: token, ttl_ms, ticket_ttl_ms, channel ('' keeps the current one), fence_ttl_ms,
--   rid
-- returns: what renew.lua of the mutex returns | {'D', rid, type, value, fence, done_at_ms}
-- invariant: that of the mutex; the record of the result is only read.
--@include _done
local function of_mutex()
--@include mutex.renew
end
return done or of_mutex()
