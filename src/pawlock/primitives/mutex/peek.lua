-- Reads the holder's value including its secret: `force` needs it to release exactly this holder.
-- keys: name, fence, queue, tickets
-- args: rid
-- returns: {'V', rid, cur, {value, public} (nobody holds: {})}
-- invariant: it writes nothing; the value is used for the next request only and is shown to nobody.
--@include _fence
--@include _tickets
local value = call('GET', NAME)
--@include _clock
call('ZCARD', QUEUE)
call('HLEN', TICKETS)
return {'V', RID, present_fence(), value and {value, public(value)} or {}}
