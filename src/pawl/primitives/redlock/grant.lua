-- Votes: gives this node's part of a name to one candidate, if it is free here. Nobody queues on such a node.
-- keys: name, fence, dead
-- args: token, ttl_ms, block, hint (a fence that the candidate would like on every node), clock (1: tell it),
--   fence_ttl_ms, rid
-- returns: {'H', rid, cur, pttl_ms, now_us (0: not read)} | {'B', rid, holder_pttl_ms, foreign, holder_public, now_us}
--   | {'X', rid, now_us}
-- invariant: the name is set only while it is absent and its token is not dead; the fence is above every fence that
--   this node knows of the name, and a copy that comes late answers the same and changes nothing.
local token, ttl_ms, block, hint, DEAD = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), KEYS[3]
-- Nothing is there: what `grant` does, with the fewest calls and before any function is built.
if call('EXISTS', NAME, DEAD) == 0 then
  local last, version, lives_ms = unpack(call('HMGET', FENCE, 'last', 'v', 'x'))
  if version == '1' then
    last = tonumber(last or 0)
    local keep_ms = math.max(ttl_ms, ARGV[6] * 23 / 24)
    -- The wish is a little above what is known: that it rises is all that is asked of a fence, and needs no clock.
    if hint > last and hint <= last + 3600000000 and (lives_ms or 0) - keep_ms > hint / 1000 and ARGV[5] == '0' then
      call('SET', NAME, token, 'PX', ARGV[2])
      call('HSET', FENCE, 'last', hint + math.max(block, 1) - 1, 'cur', ARGV[4])
      return {'H', RID, hint, ttl_ms, 0}
    end
--@include _clock
    local cur = math.max(last + 1, now_us)
    if hint > cur and hint <= now_us + 3600000000 then
      cur = hint
    end
    last = cur + math.max(block, 1) - 1
    if (lives_ms or 0) - keep_ms >= math.max(now_ms, math.ceil(last / 1000)) then
      call('SET', NAME, token, 'PXAT', now_ms + ttl_ms)
      call('HSET', FENCE, 'last', last, 'cur', cur)
      return {'H', RID, cur, ttl_ms, now_us}
    end
  end
end
local left_ms = call('PTTL', NAME)
local value = call('GET', NAME)
local barred = value ~= token and call('EXISTS', DEAD) == 1
--@include _fence
local fence, refusal = read_fence()
--@include _clock
if refusal then
  return refusal
end
if value == token then
  return {'H', RID, present_fence(fence), left_ms, now_us}
end
if barred then
  return {'X', RID, now_us}
end
if value then
  local foreign = string.find(value, '@', 1, true) and 0 or 1
  return {'B', RID, left_ms, foreign, foreign == 0 and string.match(value, '@(.*)$') or '', now_us}
end
-- A wish from far ahead of this clock comes from a clock that is wrong: it would drag every later fence along.
if hint > now_us and hint <= now_us + HOUR_MS * 1000 then
  fence[1] = math.max(tonumber(fence[1] or '0'), hint - 1)
end
return {'H', RID, grant(token, now_ms + ttl_ms, block, fence), ttl_ms, now_us}
