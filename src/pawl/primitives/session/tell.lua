-- Wakes one waiter of this client: it looks around and asks again.
-- keys: sessions
-- args: channel, token, rid
-- returns: {'T', rid}
-- invariant: it writes nothing, and its message is a hint only: with a fence of 0 it grants nothing.
redis.pcall('PUBLISH', ARGV[1], ARGV[2] .. ' 0 0 0')
return {'T', RID}
