-- Ends the lease of one holder, and grants its permits to the waiters that fit then.
-- keys: permits, fence, queue, tickets, dead (of the holder), holds
-- args: member (of the set), permits (0 for no limit), tomb_ms, fence_ttl_ms, rid
-- returns: {'R', rid, fence, public} | {'A', rid, ''}
-- invariant: only the member that was read before is removed, the next fence is above all that its holder was given, and
--   a resent request finds the tombstone and affects nobody else.
local member, permits, tomb_ms, DEAD = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), KEYS[5]
--@include _fence
--@include _holders
local expiry = tonumber(call('ZSCORE', NAME, member) or '-1')
--@include _clock
if expiry < now_ms then
  if call('GET', DEAD) == 'forced' then
    return {'R', RID, tonumber(fence[1] or '0'), shown(member)}
  end
  return {'A', RID, ''}
end
call('HLEN', HOLDS)
local state = survey(read_limit(permits), member)
local found = plan(state)
go_on()
local last = mint(1, now_ms + tomb_ms)
local stale = settle(state, found)
state.dead[#state.dead + 1] = member
bury_holders(state, found, stale)
remove(found.drop)
-- The holder finds the mark with its next renewal, which comes before its lease would have ended.
bury(DEAD, math.max(tomb_ms, expiry - now_ms), 'forced')
announce()
return {'R', RID, last, shown(member)}
