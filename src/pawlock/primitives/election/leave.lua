-- Resigns, withdraws or undoes: leave.lua of the mutex, which also notifies the observers.
-- keys: name, fence, queue, tickets, dead, observers
-- args: token, tomb_ms (0: no tombstone), close_ms (0: hand off immediately), fence_ttl_ms, rid
-- returns: what leave.lua of the mutex returns
-- invariant: that of the mutex; and every observer is notified if the leader changed in this run.
--@include _gate
--@include _observers
local function of_mutex()
--@include mutex.leave
end
return tell(of_mutex())
