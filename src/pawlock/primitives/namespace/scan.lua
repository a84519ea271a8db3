-- Scans the next few keys of a server, and returns those that match a pattern.
-- keys: node (any key of the server to scan)
-- args: cursor ('0' begins), pattern, count (about how many keys to scan), rid
-- returns: {'K', rid, cursor ('0' at the end), keys of the server, {key, ...}}
-- invariant: it writes nothing, and reads no key's value; a key that exists from the first step to the last is returned.
local found = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
return {'K', RID, found[1], call('DBSIZE'), found[2]}
