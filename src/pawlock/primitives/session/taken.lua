-- Reads which grants were force-released recently.
-- keys: taken
-- args: rid
-- returns: {'T', rid, now_ms, {tag, ...}}
-- invariant: it writes nothing.
--@include _clock
return {'T', RID, now_ms, call('ZRANGEBYSCORE', KEYS[1], string.format('%.0f', now_ms), '+inf')}
