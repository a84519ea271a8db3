-- Sets one key: a script that a node on the way of a slot can run.
-- keys: name
-- args: value, rid
-- returns: {'K', rid}
-- invariant: it has a single key, so that a node asked for a slot on its way does not ask to try again.
call('SET', NAME, ARGV[1], 'PX', '10000')
return {'K', RID}
