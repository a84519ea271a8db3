-- Reads who holds permits, secrets and all: `force` needs them to release exactly these holders.
-- keys: permits, fence, queue, tickets, holds
-- args: rid
-- returns: {'V', rid, cur, {member of the set, public, ...}}
-- invariant: it writes nothing; the members are used for the next requests only and are shown to nobody.
--@include _fence
--@include _tickets
--@include _clock
call('ZCARD', QUEUE)
call('HLEN', TICKETS)
call('HLEN', HOLDS)
local holders = {}
for _, member in ipairs(call('ZRANGEBYSCORE', NAME, digits(now_ms), '+inf')) do
  holders[#holders + 1] = member
  holders[#holders + 1] = shown(member)
end
return {'V', RID, present_fence(), holders}
