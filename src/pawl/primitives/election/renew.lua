-- Renews a leader or a candidate: renew.lua of the mutex, and the observers are told.
-- keys: name, fence, queue, tickets, observers, holds
-- args: token, ttl_ms, ticket_ttl_ms, channel ('' keeps the present one), fence_ttl_ms,
--   rid
-- returns: what renew.lua of the mutex returns
-- invariant: that of the mutex; and a leader that changed in this run was told of to every observer.
--@include _gate
--@include _observers
local function of_mutex()
--@include mutex.renew
end
return tell(of_mutex())
