-- Votes: grants the lock on this node to one candidate, if it is free here. There is no queue on such a node.
-- keys: name, fence, dead
-- args: token, ttl_ms, proposal (the fence that the candidate proposes to every node), last (the end of the block that
--   begins with it; without a proposal: the block's size minus one), promised_ms (how long the fence must be kept at least;
--   0: return the clock), fence_ttl_ms, rid
-- returns: {'H', rid} (exactly what was asked for) | {'H', rid, cur, pttl_ms, now_us (0: not read)} | {'B', rid,
--   holder_pttl_ms, foreign, holder_public, now_us} | {'X', rid, now_us}
-- invariant: the name is set only while it is absent and its token is not dead; the fence is above every fence that
--   this node knows for the name, and a late copy gets the same reply and changes nothing.
local token, ttl_ms, proposal, DEAD = ARGV[1], tonumber(ARGV[2]), ARGV[3] + 0, KEYS[3]
--@include _token
-- Nothing is there: what `grant` does, with the fewest calls and before any function is built.
if call('EXISTS', NAME, DEAD) == 0 then
  local known, promised_ms = call('HMGET', FENCE, 'last', 'v', 'x'), ARGV[5] + 0
  local last, lives_ms = (known[1] or 0) + 0, (known[3] or 0) + 0
  -- The proposal is a little above what is known: that it rises is all that is asked of a fence, and needs no clock.
  if known[2] == '1' and proposal > last and proposal <= last + 3600000000 and promised_ms > 0 and lives_ms > promised_ms then
    call('SET', NAME, token, 'PX', ARGV[2])
    call('HSET', FENCE, 'last', ARGV[4], 'cur', ARGV[3])
    return {'H', RID}
  end
end
local left_ms = call('PTTL', NAME)
local value = call('GET', NAME)
local barred = value ~= token and call('EXISTS', DEAD) == 1
--@include _fence
--@include _clock
if value == token then
  return {'H', RID, present_fence(), left_ms, now_us}
end
if barred then
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
return {'H', RID, grant(token, now_ms + ttl_ms, ARGV[4] - proposal + 1), ttl_ms, now_us}
