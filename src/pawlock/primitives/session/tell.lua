-- Sends a client a message about a token: that its lease is over, or that its waiter must ask again.
-- keys: sessions
-- args: channel, token, kind (0: its lease is over, 1: ask again), rid
-- returns: {'T', rid}
-- invariant: it writes nothing, and its message grants nothing, as its fence is 0. Only kind 0 ends a lease: a waiter that
--   is woken may have been granted the name in the meantime.
redis.pcall('PUBLISH', ARGV[1], table.concat({ARGV[2], '0', ARGV[3], '0'}, ' '))
return {'T', RID}
