-- Reads the holder's value including its secret: `force` needs it to release exactly this holder.
-- keys: name, fence, queue, tickets, holds
-- args: rid
-- returns: {'V', rid, value or '', cur, held}
-- invariant: it writes nothing; the value is used for the next request only and is shown to nobody.
--@include _fence
local value = call('GET', NAME)
--@include _clock
local fence, refusal = read_fence()
if refusal then
  return refusal
end
call('ZCARD', QUEUE)
call('HLEN', TICKETS)
call('HLEN', HOLDS)
return {'V', RID, value or '', present_fence(fence), value and 1 or 0}
