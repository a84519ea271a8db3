-- Tells what a candidate must know of a node before it counts its vote.
-- keys: name (any; nothing is read from it)
-- args: rid
-- returns: {'P', rid, info_of_server, now_us}
-- invariant: it writes nothing.
local info = redis.pcall('INFO', 'server')
read_clock()
return {'P', RID, type(info) == 'string' and info or '', now_us}
