-- Ends the lease of the holder of a key that is shared with other programs, and wakes their waiters.
-- keys: name, fence, queue, tickets, dead, other (the list of waiters of the other library; name: it has none)
-- args: how (publish, spublish or push), where (the channel; '' for a list), what (the message, or the life of the list
--   in ms), value (of the name's key), tomb_ms, fence_ttl_ms, rid
-- returns: what force.lua of the mutex returns
-- invariant: that of the mutex, which runs as it is; the other waiters are notified only after the name was released.
local how, where, what = table.remove(ARGV, 1), table.remove(ARGV, 1), table.remove(ARGV, 1)
local OTHER = KEYS[6]
local function take_away()
--@include mutex.force
end
local reply = take_away()
--@include _tell
return reply
