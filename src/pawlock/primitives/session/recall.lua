-- Reads the newest history entries of one name.
-- keys: history
-- args: limit, rid
-- returns: {'A', rid, now_ms, {'fence granted_ms ended_ms how kind tag who', ...}}, oldest first
-- invariant: it writes nothing.
--@include _clock
return {'A', RID, now_ms, call('ZRANGE', KEYS[1], -tonumber(ARGV[1]), -1)}
