-- Looks at the next few keys of a server, and lists those that fit a pattern.
-- keys: node (any key of the server that is meant)
-- args: cursor ('0' begins), pattern, count (how many keys to look at, about), rid
-- returns: {'K', rid, cursor ('0' at the end), keys of the server, {key, ...}}
-- invariant: it writes nothing, and reads no key's value; what is there from the first step to the last is listed.
local found = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
return {'K', RID, found[1], call('DBSIZE'), found[2]}
