-- Renews a waiter, as renew.lua does, and the tickets of other waiters of the same client.
-- keys: permits, fence, queue, tickets, holds
-- args: token, mode (in which it holds or waits), permits (0 for no limit), ttl_ms, ticket_ttl_ms, channel ('' keeps the
--   current one), others (tokens separated by spaces), fence_ttl_ms, rid
-- returns: what renew.lua returns; 'Q' has one more element: {rank, ...}, the position of each of the others, or -1
--   for one that must ask for itself
-- invariant: that of renew.lua; for the others, only the expiry of an existing ticket is raised, never lowered, so a
--   late copy revives no ticket of a waiter that left.
local function of_own()
--@include renew
end
--@include _together
return with_others(of_own(), ARGV[7], tonumber(ARGV[5]))
