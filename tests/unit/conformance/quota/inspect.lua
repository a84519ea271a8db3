-- Returns how much of the present period was taken.
-- keys: quota
-- args: rid
-- returns: {'I', rid, used, ends_ms (below 0: there is no period), now_ms}
-- invariant: it writes nothing.
local left_ms = call('PTTL', NAME)
--@include _clock
return {'I', RID, tonumber(call('HGET', NAME, 'used') or '0'), left_ms, now_ms}
