-- Acquires the lock, or queues for it.
-- keys: name, fence, queue, tickets, dead
-- args: token, ttl_ms, ticket_ttl_ms, mode (0 try, 1 wait), block, channel, max_waiters,
--   fence_ttl_ms, rid
-- returns: {'H', rid, cur, pttl_ms, now_ms} | {'Q', rid, rank, holder_pttl_ms, own_expiry_ms, now_ms, foreign}
--   | {'B', rid, holder_pttl_ms, foreign, holder_public} | {'X', rid} | {'F', rid, waiters}
-- invariant: the name is set only while it is absent and no live ticket is queued before it, and a late copy finds its
--   token holding, queued or dead, and lowers no expiry.
local token, ttl_ms, mode, block, DEAD = ARGV[1], tonumber(ARGV[2]), ARGV[4], tonumber(ARGV[5]), KEYS[5]
--@include _token
-- Nothing is there: what `grant` does, with the fewest calls, before any function is built. A whole number below
-- 10^17 reaches a command as `digits` would write it.
if call('EXISTS', NAME, QUEUE, DEAD) == 0 then
  local fence = call('HMGET', FENCE, 'last', 'v', 'x')
  if fence[2] == '1' then
--@include _clock
    local cur = math.max((fence[1] or 0) + 1, now_us)
    local last = cur + math.max(block, 1) - 1
    local kept_ms = math.max(now_ms, math.ceil(last / 1000)) + math.max(ttl_ms, ARGV[8] * 23 / 24)
    if kept_ms <= tonumber(fence[3] or 0) then
      call('SET', NAME, token, 'PXAT', now_ms + ttl_ms)
      call('HSET', FENCE, 'last', last, 'cur', cur)
      return {'H', RID, cur, ttl_ms, now_ms}
    end
  end
elseif mode == '1' then
  -- Others wait already: what `enqueue` does, with the fewest calls and before any function is built.
  local value, waiters = call('GET', NAME), call('ZCARD', QUEUE)
  -- A value that is plainly a token; any other goes the long way.
  local chance = value and string.match(value, '^([0-9A-Za-z]+)@')
  local token_there = chance and #chance > 21 and value ~= token
  if token_there and waiters > 0 and waiters < tonumber(ARGV[7]) and call('EXISTS', DEAD) == 0 then
    local left, least_ms = call('PTTL', NAME), tonumber(ARGV[3]) + 1000
    local outlived = call('PTTL', QUEUE) < least_ms or call('PTTL', TICKETS) < least_ms
    local tail, fence = call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2], call('HMGET', FENCE, 'v', 'x')
--@include _clock
    local expiry = string.format('%.0f', now_ms + ARGV[3])
    local ticket = table.concat({expiry, ARGV[2], ARGV[5], ARGV[6], '-'}, ' ')
    local kept = ARGV[8] == '0' or (fence[2] or 0) - ARGV[8] * 23 / 24 >= now_ms
    if not outlived and kept and fence[1] == '1' and string.find(ARGV[6], '^%S+$')
      and call('HSETNX', TICKETS, token, ticket) == 1 then
      local number = math.max(now_us, tail + 1)
      local rank = call('ZADD', QUEUE, number, token) == 1 and waiters or call('ZRANK', QUEUE, token)
      return {'Q', RID, rank, left, tonumber(expiry), now_ms, 0}
    end
  end
end
-- HSETNX has written nothing, if it was asked.
--@clean
--@include _clock
--@include _fence
local value = call('GET', NAME)
if value ~= token and call('EXISTS', DEAD) == 1 then
  return {'X', RID}
end
local queued = not value and call('ZRANGE', QUEUE, 0, 0)[1]
if value == token then
  return {'H', RID, present_fence(), call('PTTL', NAME), now_ms}
end
if not value and not queued then
  return {'H', RID, grant(token, now_ms + ttl_ms, block), ttl_ms, now_ms}
end
--@include _queue
local gone = {}
if not value then
  local found = plan(queued)
  pump(found, token)
  gone, value = found.drop, found.token
  local cur = found.token == token and found.cur
  if not found.token then
    found.expiry, cur = now_ms + ttl_ms, grant(token, now_ms + ttl_ms, block)
  end
  if cur then
    remove(gone)
    return {'H', RID, cur, found.expiry - now_ms, now_ms}
  end
end
local reply
if mode == '1' then
  local ticket_ttl_ms, channel, max_waiters = tonumber(ARGV[3]), ARGV[6], tonumber(ARGV[7])
  reply = enqueue(token, ttl_ms, ticket_ttl_ms, block, channel, '-', max_waiters, value, gone)
  keep_fence(0)
else
  remove(gone)
  reply = {'B', RID, call('PTTL', NAME), is_foreign(value), public(value)}
end
announce()
return reply
