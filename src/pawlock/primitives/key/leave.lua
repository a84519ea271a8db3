-- Releases, withdraws or undoes a token of a key that is shared with other programs, and wakes their waiters.
-- keys: name, fence, queue, tickets, dead, other (the list of waiters of the other library; name: it has none)
-- args: how (publish, spublish or push), where (the channel; '' for a list), what (the message, or the life of the list
--   in ms), token, tomb_ms, close_ms, fence_ttl_ms, rid
-- returns: what leave.lua of the mutex returns
-- invariant: that of the mutex, which runs as it is; the other waiters are notified only after the name was released.
local how, where, what = table.remove(ARGV, 1), table.remove(ARGV, 1), table.remove(ARGV, 1)
local OTHER = KEYS[6]
local function give_back()
--@include mutex.leave
end
local reply = give_back()
--@include _tell
return reply
