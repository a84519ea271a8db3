-- Reads the record of one session.
-- keys: record
-- args: rid
-- returns: {'S', rid, now_ms, 'written_ms number data' or ''}
-- invariant: it writes nothing.
read_clock()
return {'S', RID, now_ms, call('GET', KEYS[1]) or ''}
