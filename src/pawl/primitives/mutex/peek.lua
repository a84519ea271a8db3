-- Reads who holds the name, secret and all: what `force` must know to be sure whom it takes the name from.
-- keys: name, fence, queue, tickets, holds
-- args: rid
-- returns: {'V', rid, value or '', cur, held}
-- invariant: it writes nothing; the value is for the next request alone and is shown to nobody.
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
