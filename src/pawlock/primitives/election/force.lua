-- Ends the term of the leader: force.lua of the mutex, which also notifies the observers.
-- keys: name, fence, queue, tickets, dead, observers
-- args: value (of the name's key), tomb_ms, fence_ttl_ms, rid
-- returns: what force.lua of the mutex returns
-- invariant: that of the mutex; and every observer is notified if the leader changed in this run.
--@include _gate
--@include _observers
local function of_mutex()
--@include mutex.force
end
return tell(of_mutex())
