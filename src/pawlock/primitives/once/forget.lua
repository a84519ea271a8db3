-- Deletes the record of a result, so that it can be done once more.
-- keys: name, done
-- args: rid
-- returns: {'R', rid, deleted}
-- invariant: it deletes the record alone: a client that runs it, or waits, is not affected.
return {'R', RID, call('DEL', KEYS[2])}
