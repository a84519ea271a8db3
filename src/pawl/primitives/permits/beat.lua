-- Renews a waiter: renew.lua; and with it the tickets of other waiters of the same client.
-- keys: permits, fence, queue, tickets, holds
-- args: token, mode (as which it holds or waits), permits (0 for no limit), ttl_ms, ticket_ttl_ms, channel ('' keeps the
--   present one), others (tokens with a blank between), fence_ttl_ms, rid
-- returns: what renew.lua returns; 'Q' with one element more: {rank, ...}, the place of each of the others, or -1 of
--   one that is to ask by itself
-- invariant: that of renew.lua; and of the others only the expiry of a ticket that stands is raised, never lowered, so
--   that a late copy keeps nobody waiting who went away.
local function of_own()
--@include renew
end
--@include _together
return with_others(of_own(), ARGV[7], tonumber(ARGV[5]))
