-- Deletes the record of one session.
-- keys: record, sessions, order
-- args: id, rid
-- returns: {'D', rid}
-- invariant: no other session is affected, and running it twice changes nothing.
call('ZCARD', KEYS[2])
call('ZCARD', KEYS[3])
call('DEL', KEYS[1])
call('ZREM', KEYS[2], ARGV[1])
call('ZREM', KEYS[3], ARGV[1])
return {'D', RID}
