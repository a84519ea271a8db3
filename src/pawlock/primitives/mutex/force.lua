-- Ends the lease of the current holder, and grants the name to the next waiter.
-- keys: name, fence, queue, tickets, dead
-- args: value (of the name's key), tomb_ms, fence_ttl_ms, rid
-- returns: {'R', rid, fence, public} | {'A', rid, public of the current holder, present}
-- invariant: only the value that was read before is deleted, the next fence is above all that its holder was given,
--   and a resent request finds the tombstone and does not affect the next holder.
local expected, tomb_ms, DEAD = ARGV[1], tonumber(ARGV[2]), KEYS[5]
local value, left = call('GET', NAME), call('PTTL', NAME)
--@include _clock
--@include _fence
--@include _queue
local head = call('ZRANGE', QUEUE, 0, 0)[1]
if value ~= expected then
  if call('GET', DEAD) == 'forced' then
    return {'R', RID, tonumber(fence[1] or '0'), public(expected)}
  end
  return {'A', RID, public(value), present(value)}
end
call('HLEN', TICKETS)
local found = head and plan(head) or {drop = {}}
go_on()
local last = mint(1, now_ms + tomb_ms)
pump(found)
if not found.token then
  call('DEL', NAME)
end
remove(found.drop)
-- The holder finds the mark with its next renewal, which comes before its lease would have ended.
bury(DEAD, math.max(tomb_ms, left), 'forced')
announce()
return {'R', RID, last, public(expected)}
