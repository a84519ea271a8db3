-- Renews a leader or a candidate: renew.lua of the mutex, which also notifies the observers.
-- keys: name, fence, queue, tickets, observers
-- args: token, ttl_ms, ticket_ttl_ms, channel ('' keeps the current one), fence_ttl_ms,
--   rid
-- returns: what renew.lua of the mutex returns
-- invariant: that of the mutex; and every observer is notified if the leader changed in this run.
--@include _gate
--@include _observers
local function of_mutex()
--@include mutex.renew
end
return tell(of_mutex())
