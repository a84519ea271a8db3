-- Votes for a reader, beside other readers, or for a single writer. There is no queue on such a node.
-- keys: permits, fence, intent, dead, holds
-- args: token, mode (1 to read, x to write), ttl_ms, hint (the fence that the candidate proposes to every node), wait
--   (1: a writer that waits, 2: a lease whose vote this node forgot, else 0), fence_ttl_ms, rid
-- returns: {'H', rid, fence, left_ms, now_us} | {'B', rid, first_end_ms, 0, holder_public, now_us} | {'X', rid, now_us}
-- invariant: a writer is granted only while nobody holds, a reader only while no writer does, a dead token never; the
--   fence is above every fence that this node knows for the name, and a late copy gets the same reply.
local token, mode, ttl_ms, hint = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local INTENT, DEAD, HELD, SLACK_MS, INTENT_MS = KEYS[3], KEYS[4], HOLDS, 1000, 600
--@include _token
if is_guessable(token) then
  return redis.error_reply(GUESSABLE)
end
--@include _fence
--@include _clock
local now, kept = digits(now_ms), tonumber(call('HGET', HELD, token) or '0')
-- A writer that reads by now is still the token's.
local mine = call('ZSCORE', NAME, mode .. ':' .. token) or call('ZSCORE', NAME, (mode == 'x' and '1:' or 'x:') .. token)
local fence, refusal = read_fence()
if refusal then
  return refusal
end
if mine and tonumber(mine) >= now_ms then
  return {'H', RID, kept, tonumber(mine) - now_ms, now_us}
end
if call('EXISTS', DEAD) == 1 then
  return {'X', RID, now_us}
end
-- A writer is alone, so whoever is first tells whether it is one. The last millisecond counts.
local first = call('ZRANGEBYSCORE', NAME, now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local barred = first[1] and (mode == 'x' or string.sub(first[1], 1, 2) == 'x:')
-- Who reads already goes on: a waiting writer comes after it, whatever this node remembers.
local intent = mode == '1' and ARGV[5] ~= '2' and call('EXISTS', INTENT) == 1
if barred or intent then
  if mode == 'x' and ARGV[5] == '1' then
    -- No reader is let in any more, so that the writer's time comes. It runs out by itself when nobody comes for it.
    redis.pcall('SET', INTENT, '1', 'PX', INTENT_MS)
  end
  local left_ms = first[2] and tonumber(first[2]) - now_ms or -2
  return {'B', RID, left_ms, 0, first[1] and string.match(first[1], '@(.*)$') or '', now_us}
end
local dead = call('ZRANGEBYSCORE', NAME, '-inf', '(' .. now, 'LIMIT', 0, 64)
-- A wish from far ahead of this clock comes from a clock that is wrong: it would drag every later fence along.
if hint > now_us and hint <= now_us + HOUR_MS * 1000 then
  fence[1] = math.max(tonumber(fence[1] or '0'), hint - 1)
end
local expiry = now_ms + ttl_ms
local cur = mint(1, fence, expiry)
call('ZADD', NAME, digits(expiry), mode .. ':' .. token)
call('HSET', HELD, token, digits(cur))
for _, key in ipairs({NAME, HELD}) do
  if call('PTTL', key) < ttl_ms then
    call('PEXPIREAT', key, digits(expiry + SLACK_MS))
  end
end
-- The dead go last: a key that loses its last member is gone. The token may hold again what it held before.
for _, member in ipairs(dead) do
  local former = string.match(member, '^%w+:(.*)$')
  if member ~= mode .. ':' .. token then
    call('ZREM', NAME, member)
  end
  if former ~= token then
    call('HDEL', HELD, former)
  end
end
if mode == 'x' then
  call('DEL', INTENT)
end
return {'H', RID, cur, ttl_ms, now_us}
