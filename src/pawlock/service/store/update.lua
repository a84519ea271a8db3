-- Updates the records of leases: some were renewed, some are over.
-- keys: holds, session
-- args: life_ms, renewed (JSON: [token, ...]), over (JSON: [token, ...]), rid
-- returns: {'T', rid, now_ms, there (1: there is such a session)}
-- invariant: a lease that was not noted is not noted now, and no expiry falls.
local life_ms, renewed, over = tonumber(ARGV[1]), cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local MINE, SESSION = KEYS[1], KEYS[2]
local mine_left = call('PTTL', MINE)
--@include _clock
call('ZCARD', MINE)
local there = call('HEXISTS', SESSION, 'ttl_ms')
-- Takes nothing away: a server without memory then lets the rest pass.
call('HDEL', SESSION, '')
local expiry = string.format('%.0f', now_ms + life_ms)
if #renewed > 0 and mine_left > 0 and mine_left < life_ms then
  call('PEXPIREAT', MINE, expiry)
end
for _, token in ipairs(renewed) do
  call('ZADD', MINE, 'XX', 'GT', expiry, token)
end
-- Last: a key that loses its last member is gone.
for from = 1, #over, 1000 do
  call('ZREM', MINE, unpack(over, from, math.min(from + 999, #over)))
  call('HDEL', SESSION, unpack(over, from, math.min(from + 999, #over)))
end
return {'T', RID, now_ms, there}
