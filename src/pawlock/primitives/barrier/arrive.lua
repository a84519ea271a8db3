-- Records an arrival, or keeps the place of a party that waits. The last arrival releases all of them.
-- keys: barrier, waiting, passed, tickets, dead
-- args: token, mode (0 arrive, 1 stay), parties, ticket_ttl_ms, keep_ms (how long to remember who passed), channel, rid
-- returns: {'P', rid, index, round} | {'W', rid, arrived, round, expiry_ms} | {'U', rid, round}
--   | {'C', rid, parties} | {'X', rid}
-- invariant: exactly as many parties pass together as the barrier has, each with a live ticket and an index of its own;
--   a late copy finds its token waiting, passed or dead, and is not counted twice.
local token, mode, parties = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ticket_ttl_ms, keep_ms, channel = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
--@include _gate
--@include _barrier
if barrier.passed then
  return {'P', RID, barrier.index, barrier.passed}
end
local expiry_ms = math.max(barrier.waits, now_ms + ticket_ttl_ms)
local round = math.max(barrier.round, 1)

local function stay(number)
  call('ZADD', WAITING, digits(expiry_ms), token)
  call('HSET', TICKETS_OF, token, 'w ' .. digits(number) .. ' ' .. channel)
  for _, key in ipairs({BARRIER, WAITING, TICKETS_OF}) do
    outlive(key, expiry_ms + keep_ms)
  end
end

if barrier.waits > 0 then
  -- First: a server out of memory then lets the rest pass, so that those who wait can stay.
  call('PEXPIREAT', WAITING, digits(math.max(expiry_ms, barrier.expiry_ms)))
  stay(tonumber(string.match(call('HGET', TICKETS_OF, token) or '', '^w (%d+) ') or '0'))
  sweep()
  return {'W', RID, call('ZCARD', WAITING), round, expiry_ms}
end
if mode == '1' then
  return {'U', RID, barrier.round}
end
if call('EXISTS', DEAD) == 1 then
  return {'X', RID}
end
local lapsed = call('ZRANGEBYSCORE', WAITING, '-inf', digits(now_ms))
local arrived = call('ZCARD', WAITING) - #lapsed + 1
-- 0: the server lost that key alone.
if arrived > 1 and barrier.parties > 0 and barrier.parties ~= parties then
  return {'C', RID, barrier.parties}
end
local number = barrier.number + 1
if barrier.round == 0 then
  round = now_us
end
-- First: a server without memory refuses who comes anew.
call('HSET', BARRIER, 'v', WIRE, 'parties', digits(parties), 'round', digits(round), 'number', digits(number))
stay(number)
drop(WAITING, lapsed)
if arrived < parties then
  sweep()
  return {'W', RID, arrived, round, expiry_ms}
end
-- All are there. The first that came gets the highest index, this one 0.
local all, came = call('ZRANGE', WAITING, 0, -1), {}
for from = 1, #all, CHUNK do
  local to = math.min(from + CHUNK - 1, #all)
  for i, ticket in ipairs(call('HMGET', TICKETS_OF, unpack(all, from, to))) do
    local at, where = string.match(ticket or '', '^w (%d+) (%S+)$')
    came[#came + 1] = {token = all[from + i - 1], number = tonumber(at or '0'), channel = where or '-'}
  end
end
table.sort(came, function(a, b)
  return a.number > b.number
end)
for i, one in ipairs(came) do
  call('ZADD', PASSED, digits(now_ms + keep_ms), one.token)
  call('HSET', TICKETS_OF, one.token, 'p ' .. digits(i - 1) .. ' ' .. digits(round))
end
call('HSET', BARRIER, 'round', digits(math.max(round + 1, now_us)), 'number', '0')
for _, key in ipairs({BARRIER, PASSED, TICKETS_OF}) do
  outlive(key, now_ms + keep_ms)
end
-- Last: a key that loses its last member is gone.
drop(PASSED, call('ZRANGEBYSCORE', PASSED, '-inf', digits(now_ms)))
call('DEL', WAITING)
for i, one in ipairs(came) do
  if one.token ~= token then
    wake({one.token .. ' ' .. one.channel}, i - 1, round)
  end
end
return {'P', RID, 0, round}
