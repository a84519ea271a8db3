-- Updates the records of leases: some were renewed, some are over.
-- keys: holds, index, session
-- args: life_ms, renewed (JSON: [[token, what], ...]), over (JSON: [token, ...]), rid
-- returns: {'T', rid, now_ms, there (1: there is such a session)}
-- invariant: a lease that was not noted is not noted now, and no expiry falls.
local life_ms, renewed, over = tonumber(ARGV[1]), cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local MINE, INDEX, SESSION = KEYS[1], KEYS[2], KEYS[3]
local mine_left, index_left = call('PTTL', MINE), call('PTTL', INDEX)
--@include _clock
call('ZCARD', MINE)
call('ZCARD', INDEX)
local there = call('HEXISTS', SESSION, 'ttl_ms')
-- Takes nothing away: a server without memory then lets the rest pass.
call('HDEL', SESSION, '')
local expiry = string.format('%.0f', now_ms + life_ms)
if #renewed > 0 and mine_left > 0 and mine_left < life_ms then
  call('PEXPIREAT', MINE, expiry)
end
if #renewed > 0 and index_left > 0 and index_left < life_ms then
  call('PEXPIREAT', INDEX, expiry)
end
for _, one in ipairs(renewed) do
  call('ZADD', MINE, 'XX', 'GT', expiry, one[1])
  call('ZADD', INDEX, 'XX', 'GT', expiry, one[2])
end
-- Last: a key that loses its last member is gone.
for from = 1, #over, 1000 do
  call('ZREM', MINE, unpack(over, from, math.min(from + 999, #over)))
  call('HDEL', SESSION, unpack(over, from, math.min(from + 999, #over)))
end
return {'T', RID, now_ms, there}
