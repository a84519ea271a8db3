-- Returns how many parties wait.
-- keys: barrier, waiting, passed, tickets, dead
-- args: rid
-- returns: {'I', rid, arrived, parties (0: none has arrived yet)}
-- invariant: it writes nothing.
local token = ''
--@include _gate
--@include _barrier
return {'I', RID, call('ZCOUNT', WAITING, '(' .. digits(now_ms), '+inf'), barrier.parties}
