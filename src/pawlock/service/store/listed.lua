-- Lists what is held through the service, a page at a time.
-- keys: index
-- args: from, limit, rid
-- returns: {'L', rid, now_ms, {what, ...}}
-- invariant: it writes nothing.
--@include _clock
local now = string.format('%.0f', now_ms)
return {'L', RID, now_ms, call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'LIMIT', tonumber(ARGV[1]), tonumber(ARGV[2]))}
