-- Reads the newest lines of the audit log.
-- keys: lines
-- args: limit, rid
-- returns: {'A', rid, now_ms, {'at_ms id data', ...}}
-- invariant: it writes nothing.
--@include _clock
return {'A', RID, now_ms, call('LRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1)}
