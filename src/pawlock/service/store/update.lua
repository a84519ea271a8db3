-- Takes what is over out of a session, and says whether there is such a session.
-- keys: session
-- args: over (JSON: [token, ...]), rid
-- returns: {'T', rid, there (1: there is such a session)}
-- invariant: nothing is noted, and its expiry stays.
local over, there = cjson.decode(ARGV[1]), call('HEXISTS', KEYS[1], 'ttl_ms')
for from = 1, #over, 1000 do
  call('HDEL', KEYS[1], unpack(over, from, math.min(from + 999, #over)))
end
return {'T', RID, there}
