-- Votes: grants the lock on this node to one candidate, if it is free here. There is no queue on such a node.
-- keys: name, fence, dead
-- args: token, proposal (the fence that the candidate proposes to every node; 0: any), ttl_ms, block, fence_ttl_ms, rid
-- returns: {'H', rid, cur, pttl_ms, now_us (0: not read)} | {'B', rid, holder_pttl_ms, foreign, holder_public, now_us}
--   | {'X', rid, now_us}
-- invariant: the name is set only while it is absent and its token is not dead; the fence is above every fence that
--   this node knows for the name, and a late copy gets the same reply and changes nothing.
local token, proposal, ttl_ms, block, DEAD = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, KEYS[3]
--@include _token
-- Nothing is there: what `grant` does, with the fewest calls and before any function is built.
if proposal > 0 and call('EXISTS', NAME, DEAD) == 0 then
  local known = call('HMGET', FENCE, 'last', 'v', 'x')
  local last, kept_ms = (known[1] or 0) + 0, proposal / 1000 + 1 + math.max(ttl_ms, ARGV[5] * 23 / 24)
  -- The proposal is a little above what is known: that it rises is all that is asked of a fence, and needs no clock.
  if known[2] == '1' and proposal > last and proposal <= last + 3600000000 and (known[3] or 0) + 0 > kept_ms then
    call('SET', NAME, token, 'PX', ttl_ms)
    call('HSET', FENCE, 'last', proposal + math.max(block, 1) - 1, 'cur', proposal)
    return {'H', RID, proposal, ttl_ms, 0}
  end
end
local left_ms, value = call('PTTL', NAME), call('GET', NAME)
local barred = value ~= token and call('EXISTS', DEAD) == 1
--@include _fence
--@include _clock
local cur = present_fence()
if value == token and cur > 0 then
  return {'H', RID, cur, left_ms, now_us}
end
-- Also where it was granted, and the fence went with the node's record: a token of no use.
if barred or value == token then
  return {'X', RID, now_us}
end
if value then
--@include _foreign
  local foreign = is_foreign(value)
  return {'B', RID, left_ms, foreign, foreign == 0 and string.match(value, '@(.*)$') or '', now_us}
end
-- A proposal from far ahead of this clock comes from a clock that is wrong: it would drag every later fence along.
if proposal > now_us and proposal <= now_us + 3600000000 then
  fence[1] = math.max(tonumber(fence[1] or '0'), proposal - 1)
end
return {'H', RID, grant(token, now_ms + ttl_ms, block), ttl_ms, now_us}
