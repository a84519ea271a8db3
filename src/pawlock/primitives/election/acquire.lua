-- Stands for election: acquire.lua of the mutex, which also notifies the observers.
-- keys: name, fence, queue, tickets, dead, observers
-- args: token, ttl_ms, ticket_ttl_ms, mode (0 try, 1 wait), block, channel, max_waiters,
--   fence_ttl_ms, rid
-- returns: what acquire.lua of the mutex returns
-- invariant: that of the mutex; and every observer is notified if the leader changed in this run.
--@include _gate
--@include _observers
local function of_mutex()
--@include mutex.acquire
end
return tell(of_mutex())
